package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"quartermaster/cmd/quartermaster/internal/app"
)

// Bounds of an answer.
const (
	mostInMemory = 1 << 20          // bytes; more is in a temporary file
	mostSpooled  = 8 << 30          // bytes
	sendWithin   = 30 * time.Second // a part of it
)

// errTooLong means that an answer is longer than what is kept of it.
var errTooLong = &app.InvalidError{Err: fmt.Errorf("the answer is too long: ask for less, or export it where the log is")}

// spool holds an answer until it is complete, because nothing is folded while the rows are read, and whoever asked may
// be slow. The zero value is ready to use.
type spool struct {
	text []byte
	file *os.File // of what does not fit into text
	size int64
}

// Write implements [io.Writer].
func (s *spool) Write(p []byte) (n int, err error) {
	if s.file == nil && len(s.text)+len(p) <= mostInMemory {
		s.text = append(s.text, p...)
		return len(p), nil
	}
	if s.file == nil {
		if s.file, err = os.CreateTemp("", "quartermaster-answer-"); err != nil {
			return 0, fmt.Errorf("keep a long answer: %w", err)
		}
		if err := os.Remove(s.file.Name()); err != nil { // it is open, and ends with the process
			return 0, fmt.Errorf("keep a long answer: %w", err)
		}
	}
	if s.size+int64(len(p)) > mostSpooled {
		return 0, errTooLong
	}
	n, err = s.file.Write(p)
	s.size += int64(n)
	return n, err
}

// send sends the answer. Who does not read for a while is cut off.
func (s *spool) send(w http.ResponseWriter) error {
	return s.copy(&timed{w, http.NewResponseController(w)})
}

// copy writes the answer.
func (s *spool) copy(to io.Writer) error {
	if _, err := to.Write(s.text); err != nil || s.file == nil {
		return err
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := io.CopyBuffer(to, struct{ io.Reader }{s.file}, make([]byte, 64<<10))
	return err
}

// close drops the answer.
func (s *spool) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// timed gives each write a time in which it must succeed.
type timed struct {
	to      http.ResponseWriter
	control *http.ResponseController
}

// Write implements [io.Writer].
func (t *timed) Write(p []byte) (int, error) {
	if err := t.control.SetWriteDeadline(time.Now().Add(sendWithin)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return t.to.Write(p)
}
