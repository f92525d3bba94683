package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// NotDemo keeps a user's own facts out of the data directory of the demo, where they would land
// when --data-dir is forgotten. Naming the directory explicitly allows it.
func (s *App) NotDemo() error {
	if s.Named || !s.embedded() {
		return nil
	}
	if _, err := os.Stat(filepath.Join(s.Dir, demoMark)); err == nil {
		return &helped{&ConflictError{Err: fmt.Errorf("%s holds the demo", s.Dir)}, RemedyOwnDataDir}
	}
	return nil
}

// demoMark is the file that marks a data directory as the demo's.
const demoMark = "demo.json"

// MarkDemo refuses a data directory that has other data or a demo of other input, and marks a new
// one.
func (s *App) MarkDemo(ctx context.Context, input string) error {
	if err := s.placed(); err != nil {
		return err
	}
	path := filepath.Join(s.Dir, demoMark)
	want, err := json.Marshal(map[string]string{"input": input})
	if err != nil {
		return err
	}
	have, err := os.ReadFile(path)
	switch {
	case err == nil && bytes.Equal(bytes.TrimSpace(have), want):
		return nil
	case err == nil:
		return &helped{&ConflictError{Err: fmt.Errorf("%s holds a demo of other input: %s", s.Dir, bytes.TrimSpace(have))}, RemedyOtherDataDir}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if s.Config != nil {
		err = s.withLog(ctx, func(h *Conn) error {
			end, err := h.End(ctx)
			if err == nil && end.Records() > 0 {
				err = fmt.Errorf("the log holds %s events that the demo of %s did not make, and would be mixed with it; the demo needs a log of its own",
					comma(int(end.Records())), s.Dir)
			}
			return err
		})
		if err != nil && !errors.Is(err, errNoTopics) {
			return err
		}
	} else if s.reading() == nil {
		return &helped{
			&ConflictError{Err: fmt.Errorf("%s holds data that the demo did not make, and would be mixed with it", s.Dir)},
			RemedyOtherDataDir,
		}
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	return WriteWhole(path, func(w io.Writer) error {
		_, err := w.Write(append(want, '\n'))
		return err
	})
}

// WriteWhole writes a file atomically: it exists as a whole or not at all.
func WriteWhole(path string, write func(io.Writer) error) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(tmp.Name()))
		}
	}()
	w := bufio.NewWriterSize(tmp, 1<<20)
	if err := write(w); err != nil {
		return errors.Join(err, tmp.Close())
	}
	if err := errors.Join(w.Flush(), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
