package app

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// positionsName is the file of the data directory that stores positions by their short names:
	// one line each, with the SHA-256 of the position's text and the text.
	positionsName = "positions"
	// keptPositions is how many are kept when the file has twice as many.
	keptPositions = 1000
	// shortDigits is the minimum number of SHA-256 digits in a short name.
	shortDigits = 6
)

// ShortPosition returns a short name of a position, such as @6f3a9c, and stores it in the data
// directory, so that [At] accepts it. Where the directory is not writable it returns the full
// position.
func (c *Caller) ShortPosition(position string) string {
	if len(position) <= shortDigits || c.app.Dir == "" {
		return position
	}
	known, err := c.app.positions()
	if err != nil {
		return position
	}
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(position)))
	line := sum + " " + position
	if !slices.Contains(known, line) {
		known = append(known, line)
		if err := c.app.remember(line, known); err != nil {
			return position
		}
	}
	digits := shortDigits
	for slices.ContainsFunc(known, func(l string) bool { return l != line && strings.HasPrefix(l, sum[:digits]) }) {
		digits++
	}
	return "@" + sum[:digits]
}

// remember adds a line to the positions, and drops the oldest when there are too many.
func (s *App) remember(line string, all []string) error {
	path := filepath.Join(s.Dir, positionsName)
	if len(all) >= 2*keptPositions {
		all = all[len(all)-keptPositions:]
		fresh := fmt.Sprintf("%s.%d", path, os.Getpid()) // others read the file at any time
		return errors.Join(os.WriteFile(fresh, []byte(strings.Join(all, "\n")+"\n"), 0o600), os.Rename(fresh, path))
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// positions returns the lines of the stored positions. It skips truncated and altered lines.
func (s *App) positions() (lines []string, err error) {
	data, err := os.ReadFile(filepath.Join(s.Dir, positionsName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	in := bufio.NewScanner(bytes.NewReader(data))
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		if sum, position, ok := strings.Cut(in.Text(), " "); ok && sum == fmt.Sprintf("%x", sha256.Sum256([]byte(position))) {
			lines = append(lines, in.Text())
		}
	}
	return lines, in.Err()
}

// positionOf returns the position with a short name in this data directory.
func (s *App) positionOf(short string) (string, error) {
	digits := strings.TrimPrefix(short, "@")
	lines, err := s.positions()
	if err != nil {
		return "", err
	}
	var found []string
	for _, l := range lines {
		sum, position, _ := strings.Cut(l, " ")
		if len(digits) >= shortDigits && strings.HasPrefix(sum, strings.ToLower(digits)) && !slices.Contains(found, position) {
			found = append(found, position)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		where := "in " + s.Dir
		if s.shared != nil {
			where = "here" // who asks a server need not know its directories
		}
		return "", &NotFoundError{What: "position", Name: short, Err: fmt.Errorf("no position %s is stored %s: "+
			"give the full position, as in JSON answers", short, where)}
	default:
		return "", invalid("as-of", "%s may be one of %d positions: give more of its digits", short, len(found))
	}
}
