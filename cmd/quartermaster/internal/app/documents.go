package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/dustin/go-humanize"

	"quartermaster/adapters/tabular"
	instances "quartermaster/domain/instance"
	"quartermaster/simulations/whatif"
)

// OpenFile opens a file that a question names.
func (s *App) OpenFile(path string) (io.ReadCloser, error) {
	if s.Files != nil {
		return s.Files(path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err == nil && st.IsDir() {
		f.Close()
		return nil, errors.New("it is a directory")
	}
	return f, nil
}

// ReadDocument reads a file, or standard input for "-", up to the maximum size of an instance.
func (s *App) ReadDocument(path string, stdin io.Reader) ([]byte, error) {
	return s.readFile(path, stdin, instances.MaxBytes)
}

// readFile reads a file, or standard input for "-" where there is one, up to a byte more than a size.
func (s *App) readFile(path string, stdin io.Reader, most int64) ([]byte, error) {
	from := stdin
	if path != "-" || stdin == nil || s.Files != nil {
		f, err := s.OpenFile(path)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		defer f.Close()
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, most+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}

// Question is an instance with the document that it was read from.
type Question struct {
	Instance *instances.Instance
	Document []byte
}

// ReadQuestion reads an instance from a file, "-" for standard input, and keeps its document.
func (s *App) ReadQuestion(path string, stdin io.Reader) (*Question, error) {
	data, err := s.ReadDocument(path, stdin)
	if err != nil {
		return nil, err
	}
	in, err := instances.Parse(path, data)
	if err != nil {
		return nil, &InvalidError{Err: err}
	}
	if s.IsShared() {
		if purchases, loads := in.Size(); purchases > mostPurchases || loads > mostLoads {
			return nil, &InvalidError{Err: fmt.Errorf("%s: %s possible purchases and %s loads: a server solves %s and %s at most: ask on a machine of your own",
				path, humanize.Comma(int64(purchases)), humanize.Comma(int64(loads)), humanize.Comma(mostPurchases), humanize.Comma(mostLoads))}
		}
	}
	return &Question{in, data}, nil
}

// Bounds of an instance that a server solves, beside what others ask. 1,000 pools for three years with 50 offers each are
// below them, and take 1 GiB.
const (
	mostPurchases = 3_000_000
	mostLoads     = 50_000_000
)

// ReadInstance is [ReadQuestion] without the document.
func (s *App) ReadInstance(path string, stdin io.Reader) (*instances.Instance, error) {
	q, err := s.ReadQuestion(path, stdin)
	if err != nil {
		return nil, err
	}
	return q.Instance, nil
}

// ReadContract reads a contract and the tree that it is in. Errors name file, line and column.
func (s *App) ReadContract(path string) (*whatif.Node, *instances.Contract, error) {
	data, err := s.readFile(path, nil, scenarioBytes)
	if err != nil {
		return nil, nil, err
	}
	doc, c, err := parseContract(data)
	return doc, c, InFile(path, err)
}

// parseContract reads a contract from YAML. The error is [whatif.Errors].
func parseContract(data []byte) (*whatif.Node, *instances.Contract, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil, whatif.Errors{{Line: 1, Column: 1, Problem: fmt.Sprintf("is empty; begin with apiVersion: %s and kind: %s", whatif.APIVersion, whatif.ContractKind)}}
	}
	doc, err := ScenarioTree(data)
	if err != nil {
		return nil, nil, err
	}
	c, err := whatif.ParseContract(doc)
	return doc, c, err
}

// InFile adds the name of a file to an error.
func InFile(path string, err error) error {
	var faults whatif.Errors
	if !errors.As(err, &faults) {
		return err
	}
	return &InvalidError{Err: &fileError{path, faults}}
}

// ofFile makes an error about what a file says one of the question that names it.
func ofFile(ctx context.Context, err error) error {
	var unread *fs.PathError
	if err == nil || ctx.Err() != nil || KindOf(err) != KindNone || errors.As(err, &unread) {
		return err
	}
	return &InvalidError{Err: err}
}

// rowsError are rows of a file that are wrong.
type rowsError []tabular.BadRow

func (e rowsError) Error() string {
	lines := make([]string, len(e))
	for i, row := range e {
		lines[i] = row.String()
	}
	return strings.Join(lines, "\n")
}

// fileError are the faults of a file.
type fileError struct {
	path   string
	faults whatif.Errors
}

func (e *fileError) Error() string {
	lines := strings.Split(e.faults.Error(), "\n")
	for i, l := range lines {
		if !strings.HasPrefix(l, "and ") {
			lines[i] = e.path + ":" + l
		}
	}
	return strings.Join(lines, "\n")
}
