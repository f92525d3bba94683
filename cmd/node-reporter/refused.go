package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"quartermaster/adapters/spool"
)

// checkWaiting reports events that wait under the name of another cluster, and events that were
// refused.
func checkWaiting(cfg *Config) (out []finding) {
	left, err := spool.Left(cfg.Spool.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return []finding{{"waiting", resultWarning, err.Error(), "look at the directory as the user that this program runs as"}}
	}
	for _, source := range slices.Sorted(maps.Keys(left)) {
		if source == "" || strings.HasPrefix(source, sourceOf(cfg.Cluster)) {
			continue
		}
		out = append(out, finding{
			"waiting", resultWarning,
			fmt.Sprintf("%d KiB wait that were observed as %s, but this node now belongs to cluster %s",
				(left[source]+1023)>>10, source, cfg.Cluster),
			"run moves them into " + refusedName + " beside the spool and continues with this cluster's events; " +
				"if their cluster is the right one, correct cluster in the configuration first",
		})
	}
	path := filepath.Join(cfg.Spool.Dir, refusedName)
	n, err := countLines(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && n == 0:
	case err != nil:
		out = append(out, finding{"refused", resultWarning, err.Error(), "look at the file as the user that this program runs as"})
	default:
		out = append(out, finding{
			"refused", resultWarning, fmt.Sprintf("%s holds %d events that the log refused", path, n),
			"each line says why; docs/how-to/resend-refused-events.md says how to send them again. Then move the file away",
		})
	}
	return out
}

func countLines(path string) (n int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	b := make([]byte, 64<<10)
	for {
		size, err := f.Read(b)
		n += bytes.Count(b[:size], []byte{'\n'})
		if errors.Is(err, io.EOF) {
			return n, nil
		} else if err != nil {
			return n, err
		}
	}
}
