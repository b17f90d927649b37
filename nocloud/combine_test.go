package nocloud_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/proxyfleet/fleet/nocloud"
	"github.com/proxyfleet/fleet/secret"
)

// kinds has cloud-init itself take a document apart, as it does at a boot. It prints what kind it takes each part for, and
// the part.
const kinds = `
import base64, json, sys, tempfile
from cloudinit import helpers, user_data
from cloudinit.util import fully_decoded_payload
paths = helpers.Paths({"cloud_dir": tempfile.gettempdir(), "run_dir": tempfile.gettempdir()})
message = user_data.UserDataProcessor(paths).process(sys.stdin.buffer.read())
parts = []
for part in message.walk():
    if user_data.is_skippable(part): continue
    payload = fully_decoded_payload(part)
    if isinstance(payload, str): payload = payload.encode("utf-8", "surrogateescape")
    parts.append({"Kind": part.get_content_type(), "Document": base64.b64encode(payload).decode()})
json.dump(parts, sys.stdout)
`

type part struct {
	Kind     string
	Document []byte
}

// taken returns what cloud-init makes of a document.
func taken(t *testing.T, document secret.Text) []part {
	t.Helper()
	program(t, "cloud-init", "cloud-init")
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", kinds)
	cmd.Stdin = strings.NewReader(document.Reveal())
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("cloud-init cannot read the document: %v\n%s", err, &complaints)
	}
	var parts []part
	if err := json.Unmarshal(out, &parts); err != nil {
		t.Fatal(err)
	}
	return parts
}

func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCombineIsUnderstoodByCloudInit(t *testing.T) {
	const script, config = "#!/bin/sh\necho ours\n", "#cloud-config\nruncmd: [\"echo 'grüße 🦊'\"]\n"
	ours := part{"text/x-shellscript", []byte(script)}
	both := nocloud.Combine(secret.New("#!/bin/sh\necho theirs\n"), secret.New(config)).Reveal()
	for _, c := range []struct {
		name, document string
		want           []part
	}{
		{"cloud-config", config, []part{ours, {"text/cloud-config", []byte(config)}}},
		{"script with CRLF", "#!/bin/sh\r\necho\r\n", []part{ours, {"text/x-shellscript", []byte("#!/bin/sh\r\necho\r\n")}}},
		{"boothook", "#cloud-boothook\necho\n", []part{ours, {"text/cloud-boothook", []byte("#cloud-boothook\necho\n")}}},
		{"compressed", zipped(t, config), []part{ours, {"text/cloud-config", []byte(config)}}},
		{"multipart", both, []part{ours, {"text/x-shellscript", []byte("#!/bin/sh\necho theirs\n")}, {"text/cloud-config", []byte(config)}}},
		{"boundaries in it", config + "--==proxyfleet==--\n", []part{ours, {"text/cloud-config", []byte(config + "--==proxyfleet==--\n")}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := taken(t, nocloud.Combine(secret.New(script), secret.New(c.document)))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCombineLeavesOneDocumentAlone(t *testing.T) {
	one := secret.New("#cloud-config\n")
	for name, got := range map[string]secret.Text{
		"first": nocloud.Combine(one, secret.Text{}), "second": nocloud.Combine(secret.Text{}, one),
	} {
		if !got.Equal(one) {
			t.Errorf("%s: combined with nothing it is %q", name, got.Reveal())
		}
	}
}
