package health

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
)

const (
	// maxAnswerBytes bounds what is read of an answer, with everything that comes before it.
	maxAnswerBytes = 64 << 10
	// maxInterim is how many 1xx answers may come before the answer.
	maxInterim = 8
)

// What a peer does wrong that no other package has an error for.
var (
	errAnswerTooLong  = errors.New("the answer is too long")
	errTooManyInterim = errors.New("too many 1xx answers came before the answer")
	errNotHTTP        = errors.New("the answer is not HTTP")
)

// answer is the head of an HTTP answer.
type answer struct {
	status    int
	surplus   bool // more than the head was read
	tinyproxy bool // tinyproxy made it, and passed nothing on
}

// readAnswer reads the head of the answer to a request of that method, past any interim ones. Errors of the reader come
// back as they are; others are this package's and quote nothing of what was read.
func readAnswer(r io.Reader, method string) (answer, error) {
	source := &boundedReader{from: r, left: maxAnswerBytes}
	buffered := bufio.NewReader(source)
	request := &http.Request{Method: method}
	for range maxInterim + 1 {
		response, err := http.ReadResponse(buffered, request) //nolint:bodyclose // closing reads the body to its end, and it holds nothing
		switch {
		case err != nil && source.err != nil:
			return answer{}, source.err
		case err != nil:
			return answer{}, errNotHTTP
		case response.StatusCode >= 200 || response.StatusCode == http.StatusSwitchingProtocols:
			return answer{
				status:    response.StatusCode,
				surplus:   buffered.Buffered() > 0,
				tinyproxy: strings.HasPrefix(response.Header.Get("Server"), "tinyproxy/"),
			}, nil
		case response.StatusCode < 100:
			return answer{}, errNotHTTP
		}
	}
	return answer{}, errTooManyInterim
}

// boundedReader reads up to left bytes and then fails. It remembers the error that it returned.
type boundedReader struct {
	from io.Reader
	left int
	err  error
}

func (b *boundedReader) Read(p []byte) (n int, err error) {
	if b.left == 0 {
		b.err = errAnswerTooLong
		return 0, b.err
	}
	n, err = b.from.Read(p[:min(len(p), b.left)])
	b.left -= n
	if err != nil {
		b.err = err
	}
	return n, err
}
