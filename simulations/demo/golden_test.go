package demo_test

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the goldens anew; read the difference before committing it")

// headLines is the number of lines of a file in a golden.
const headLines = 12

// golden compares a file with testdata/NAME.golden, which has the SHA-256 of the
// whole file and shows its head and its last line: so a difference can be read.
// The head is of the file itself, or of readable where the file is not text.
func golden(t *testing.T, name string, file, readable []byte) {
	t.Helper()
	var got bytes.Buffer
	all := bytes.SplitAfter(bytes.TrimSuffix(readable, []byte("\n")), []byte("\n"))
	fmt.Fprintf(&got, "sha256 %x\nbytes %d\nlines %d\n\n", sha256.Sum256(file), len(file), len(all))
	if len(all) > headLines+1 {
		got.Write(bytes.Join(all[:headLines], nil))
		got.WriteString("...\n")
		got.Write(all[len(all)-1])
	} else {
		got.Write(bytes.Join(all, nil))
	}
	got.WriteString("\n")

	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%s differs; got:\n%s\nwant:\n%s", path, got.Bytes(), want)
	}
}
