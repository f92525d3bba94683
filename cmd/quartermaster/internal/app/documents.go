package app

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"quartermaster/simulations/whatif"

	instances "quartermaster/domain/instance"
)

// ReadDocument reads a file, or standard input for "-", up to the maximum size of an instance.
func ReadDocument(path string, stdin io.Reader) ([]byte, error) {
	from := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		defer f.Close()
		if st, err := f.Stat(); err == nil && st.IsDir() {
			return nil, fmt.Errorf("read %s: it is a directory", path)
		}
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, instances.MaxBytes+1))
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
func ReadQuestion(path string, stdin io.Reader) (*Question, error) {
	data, err := ReadDocument(path, stdin)
	if err != nil {
		return nil, err
	}
	in, err := instances.Parse(path, data)
	if err != nil {
		return nil, &InvalidError{Err: err}
	}
	return &Question{in, data}, nil
}

// ReadInstance is [ReadQuestion] without the document.
func ReadInstance(path string, stdin io.Reader) (*instances.Instance, error) {
	q, err := ReadQuestion(path, stdin)
	if err != nil {
		return nil, err
	}
	return q.Instance, nil
}

// ReadContract reads a contract and the tree that it is in. Errors name file, line and column.
func ReadContract(path string) (*whatif.Node, *instances.Contract, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, scenarioBytes+1))
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", path, err)
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
	lines := strings.Split(faults.Error(), "\n")
	for i, l := range lines {
		if !strings.HasPrefix(l, "and ") {
			lines[i] = path + ":" + l
		}
	}
	return &InvalidError{Err: errors.New(strings.Join(lines, "\n"))}
}
