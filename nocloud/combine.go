package nocloud

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/mail"
	"strings"

	"github.com/proxyfleet/fleet/secret"
)

// Combine joins two documents into one that has the effect of both, in a multipart message as cloud-init reads it:
// https://docs.cloud-init.io/en/latest/explanation/format.html#mime-multi-part-archive
//
// Each document is of any kind that cloud-init knows, compressed or multipart itself, and its bytes arrive as they are; one
// that is compressed is not so any more, because cloud-init spoils letters beyond ASCII in a compressed part. An empty
// document is left out, so that one alone is returned unchanged. Two documents of cloud-config that have the same key are not
// merged: the second one's counts.
func Combine(first, second secret.Text) secret.Text {
	switch {
	case first.IsZero():
		return second
	case second.IsZero():
		return first
	}
	boundary := boundaryOf(first, second)
	var message strings.Builder
	fmt.Fprintf(&message, "Content-Type: multipart/mixed; boundary=%q\nMIME-Version: 1.0\n\n", boundary)
	for _, document := range []secret.Text{first, second} {
		fmt.Fprintf(&message, "--%s\n%s\n", boundary, part(document.Reveal()))
	}
	fmt.Fprintf(&message, "--%s--\n", boundary)
	return secret.New(message.String())
}

// boundaryOf returns a line that is in neither document, for a document that held it would hold its own digest.
func boundaryOf(first, second secret.Text) string {
	return fmt.Sprintf("==%x==", sha256.Sum256([]byte(first.Reveal()+"\x00"+second.Reveal())))
}

// part is a document as a part of a message, with its headers.
func part(document string) string {
	document = unzipped(document)
	if isMessage(document) {
		return document
	}
	return encoded(document)
}

// unzipped returns a document without its compression. One that cannot be read, or is larger than any cloud takes, is
// returned as it is: cloud-init then says what is wrong with it.
func unzipped(document string) string {
	const most = 16 << 20
	r, err := gzip.NewReader(strings.NewReader(document))
	if err != nil {
		return document
	}
	plain, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil || len(plain) > most {
		return document
	}
	return string(plain)
}

// encoded is a document in a form that no mail system would change. Of plain text cloud-init tells the kind by its first line.
func encoded(document string) string {
	const width = 76 // RFC 2045
	var b strings.Builder
	b.WriteString("Content-Type: text/plain; charset=\"utf-8\"\nContent-Transfer-Encoding: base64\n\n")
	for text := base64.StdEncoding.EncodeToString([]byte(document)); text != ""; {
		n := min(width, len(text))
		b.WriteString(text[:n] + "\n")
		text = text[n:]
	}
	return b.String()
}

// isMessage says whether a document is a message itself, and thus may be a part as it is.
func isMessage(document string) bool {
	message, err := mail.ReadMessage(strings.NewReader(document))
	return err == nil && strings.HasPrefix(message.Header.Get("Content-Type"), "multipart/")
}
