package health

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// repeating says a beginning once and then a text for ever, and counts what was read of it.
type repeating struct {
	beginning, again string
	read             int
}

func (r *repeating) Read(p []byte) (int, error) {
	if r.beginning == "" {
		r.beginning = r.again
	}
	n := copy(p, r.beginning)
	r.beginning = r.beginning[n:]
	r.read += n
	return n, nil
}

func TestReadAnswerIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		beginning, again string
		err              error
	}{
		"status line":  {"HTTP/1.1 204 ", "No Content ", errAnswerTooLong},
		"header":       {"HTTP/1.1 204 No Content\r\nX: ", "x", errAnswerTooLong},
		"headers":      {"HTTP/1.1 204 No Content\r\n", "X: x\r\n", errAnswerTooLong},
		"new headers":  {"HTTP/1.1 204 No Content\r\n", "A:\r\nB:\r\nC:\r\nD:\r\n", errAnswerTooLong},
		"folded line":  {"HTTP/1.1 204 No Content\r\nX: ", "x\r\n ", errAnswerTooLong},
		"noise":        {"", "\x00\xff", errAnswerTooLong},
		"1xx":          {"", "HTTP/1.1 102 Processing\r\n\r\n", errTooManyInterim},
		"long 1xx":     {"", "HTTP/1.1 103 Hints\r\nLink: " + strings.Repeat("x", 10_000) + "\r\n\r\n", errAnswerTooLong},
		"endless body": {"HTTP/1.1 204 No Content\r\nContent-Length: 9999\r\n\r\n", "x", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			source := &repeating{beginning: c.beginning, again: c.again}
			runtime.ReadMemStats(&before)
			got, err := readAnswer(source, "GET")
			runtime.ReadMemStats(&after)
			if !errors.Is(err, c.err) {
				t.Errorf("got %+v, %v, want the error %v", got, err, c.err)
			}
			if source.read > maxAnswerBytes {
				t.Errorf("read %d bytes, the bound is %d", source.read, maxAnswerBytes)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 32*maxAnswerBytes {
				t.Errorf("allocated %d bytes for at most %d bytes of answer", used, maxAnswerBytes)
			}
		})
	}
}

func TestReadAnswer(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		method string
		from   io.Reader
		want   answer
		err    error
	}{
		"plain":                  {"GET", strings.NewReader("HTTP/1.1 204 No Content\r\n\r\n"), answer{status: 204}, nil},
		"with its end":           {"GET", iotest.DataErrReader(strings.NewReader("HTTP/1.1 204 No Content\r\n\r\n")), answer{status: 204}, nil},
		"a byte at a time":       {"GET", iotest.OneByteReader(strings.NewReader("HTTP/1.0 200 OK\r\nA: b\r\n\r\n")), answer{status: 200}, nil},
		"as many 1xx as allowed": {"GET", strings.NewReader(strings.Repeat("HTTP/1.1 100 Go on\r\n\r\n", maxInterim) + "HTTP/1.1 204 x\r\n\r\n"), answer{status: 204}, nil},
		"one 1xx too many":       {"GET", strings.NewReader(strings.Repeat("HTTP/1.1 100 Go on\r\n\r\n", maxInterim+1) + "HTTP/1.1 204 x\r\n\r\n"), answer{}, errTooManyInterim},
		"switching protocols":    {"GET", strings.NewReader("HTTP/1.1 101 x\r\n\r\n"), answer{status: 101}, nil},
		"tinyproxy's own":        {"GET", strings.NewReader("HTTP/1.0 401 x\r\nServer: tinyproxy/1.11.1\r\n\r\n"), answer{status: 401, tinyproxy: true}, nil},
		"tunnel":                 {"CONNECT", strings.NewReader("HTTP/1.1 200 x\r\n\r\n"), answer{status: 200}, nil},
		"tunnel with more":       {"CONNECT", strings.NewReader("HTTP/1.1 200 x\r\n\r\nx"), answer{status: 200, surplus: true}, nil},
		"cut":                    {"GET", strings.NewReader("HTTP/1.1 204 No"), answer{}, io.EOF},
		"cut in the headers":     {"GET", strings.NewReader("HTTP/1.1 204 No Content\r\nA: b\r\n"), answer{}, io.EOF},
		"reader's error":         {"GET", io.MultiReader(strings.NewReader("HTTP/1.1 204"), iotest.ErrReader(broken)), answer{}, broken},
		"not HTTP":               {"GET", strings.NewReader("220 smtp ready\r\n\r\n"), answer{}, errNotHTTP},
		"low status":             {"GET", strings.NewReader("HTTP/1.1 099 x\r\n\r\n"), answer{}, errNotHTTP},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readAnswer(c.from, c.method)
			if got != c.want || !errors.Is(err, c.err) {
				t.Errorf("got %+v, %v, want %+v, %v", got, err, c.want, c.err)
			}
		})
	}
}

func FuzzReadAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 204 No Content\r\nA: b\r\n\r\n", "HTTP/1.1 100 x\r\n\r\nHTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "x\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		for _, method := range []string{"GET", "CONNECT"} {
			got, err := readAnswer(bytes.NewReader(sent), method)
			switch {
			case err == nil && (got.status < 101 || got.status > 999):
				t.Errorf("status %d without an error", got.status)
			case err != nil && got != answer{}:
				t.Errorf("an error and %+v", got)
			case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errNotHTTP) && !errors.Is(err, errTooManyInterim) && !errors.Is(err, errAnswerTooLong):
				t.Errorf("an error that may quote the peer: %v", err)
			}
		}
	})
}
