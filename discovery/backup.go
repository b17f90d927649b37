package discovery

import (
	"net/http"
	"time"
)

// stallTimeout is how long the reader of a backup may take none of it.
const stallTimeout = 30 * time.Second

// backup streams the fleet's state. A failure after the first byte cuts the connection, for the status was sent already.
func (a *api) backup(w http.ResponseWriter, r *http.Request) error {
	if a.Backup == nil {
		return NotOffered("this fleet keeps no state that could be backed up here")
	}
	s := &stream{w: w, conn: http.NewResponseController(w)}
	err := a.Backup(s)
	if err != nil && s.started {
		a.Logger.ErrorContext(r.Context(), "backup failed", "error", err)
		panic(http.ErrAbortHandler)
	}
	return err
}

// stream is an answer that may take longer than the server allows others, as long as it moves on.
type stream struct {
	w       http.ResponseWriter
	conn    *http.ResponseController
	started bool
}

func (s *stream) Write(b []byte) (int, error) {
	if !s.started {
		s.w.Header().Set("Content-Type", "application/octet-stream")
		s.started = true
	}
	// Where the connection has no deadlines, as in tests, none needs to be moved.
	_ = s.conn.SetWriteDeadline(time.Now().Add(stallTimeout))
	return s.w.Write(b)
}
