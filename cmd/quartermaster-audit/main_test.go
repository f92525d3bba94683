package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"quartermaster/adapters/commandline/manual"
	"quartermaster/adapters/kafka"
	"quartermaster/adapters/kafka/archive"
	"quartermaster/adapters/kafka/embedded"
	"quartermaster/adapters/keyfile"
	"quartermaster/cmd/quartermaster-audit/internal/audit"
	"quartermaster/domain"
	"quartermaster/domain/merkle"
	"quartermaster/schemas"
)

var update = flag.Bool("update", false, "write docs/reference anew")

// The reference of the commands is their own help.
func TestReference(t *testing.T) {
	pages := manual.Pages((&program{out: io.Discard, err: io.Discard}).root())
	manual.Compare(t, filepath.Join(manual.Dir, "audit"), "*.md", pages, *update)
}

// archived is an archive of 50 records with a checkpoint, and the key that signed it.
func archived(t testing.TB) (dir string, key ed25519.PrivateKey) {
	t.Helper()
	b, err := embedded.Open(t.Context(), embedded.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := kafka.Open(t.Context(), kafka.Config{Dial: b.Dial})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(l.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	}()
	var recs []domain.Record
	for i := range 50 {
		recs = append(recs, domain.Record{
			Topic: domain.TopicBooks, Time: domain.Instant(1_750_000_000+i) * domain.Second, Key: []byte("platform"),
			Value: []byte{byte(i)}, Headers: []domain.Header{{Key: "ce_type", Value: []byte("BooksClosed")}},
		})
	}
	if err := errors.Join(l.EnsureTopics(t.Context(), domain.TopicSpecs()), l.Append(t.Context(), recs)); err != nil {
		t.Fatal(err)
	}
	key = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	dir = t.TempDir()
	a := archive.New(archive.Directory(dir), archive.Log{ID: "log"})
	books := domain.TopicPartition{Topic: domain.TopicBooks}
	if err := a.Seal(t.Context(), l, books, 0, 50, archive.Policy{Bytes: 1 << 20, Key: key}, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Checkpoint(t.Context(), domain.AllPartitions(), nil, key); err != nil {
		t.Fatal(err)
	}
	return dir, key
}

// does runs the program and returns its code and what it writes.
func does(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(args, &o, &e)
	return code, o.String(), e.String()
}

func write(t testing.TB, dir, name string, body []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, body, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExitCodes(t *testing.T) {
	dir, key := archived(t)
	public := key.Public().(ed25519.PublicKey)
	text, err := keyfile.PublicPEM(public)
	if err != nil {
		t.Fatal(err)
	}
	files := t.TempDir()
	pem := write(t, files, "key.pub", []byte(text))
	vkey, err := note.NewEd25519VerifierKey(merkle.Origin("log"), public)
	if err != nil {
		t.Fatal(err)
	}
	code, proof, errs := does("prove", dir, "qm.books/0", "7")
	if code != 0 {
		t.Fatal(code, errs)
	}
	good := write(t, files, "proof.json", []byte(proof))
	bad := write(t, files, "bad.json", []byte(strings.Replace(proof, `"offset": 7`, `"offset": 8`, 1)))
	stranger, err := keyfile.PublicPEM(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	other := write(t, files, "other.pub", []byte(stranger))
	for line, want := range map[string]struct {
		code int
		says string
	}{
		"verify " + dir:                                                         {0, "intact"},
		"verify " + dir + " --signed-by " + pem:                                 {0, "signatures verified"},
		"verify " + dir + " --signed-by " + vkey:                                {0, "intact"},
		"verify " + dir + " --signed-by " + other:                               {5, "signed by keys that were not given"},
		"verify " + dir + " --signed-by " + other + " --signed-by " + pem:       {0, "intact"},
		"check-proof " + good + " --signed-by " + other + " --signed-by " + pem: {0, "by a signed checkpoint"},
		"verify " + files:                                                       {2, "archive.json is missing"},
		"verify " + filepath.Dir(dir):                                           {2, "there is one in " + dir},
		"verify " + pem:                                                         {2, "is not a directory"},
		"verify " + dir + "/nowhere":                                            {3, "no such file"},
		"verify " + dir + " --signed-by nowhere":                                {3, "no such file"},
		"verify " + dir + " --signed-by " + good:                                {2, "is not one public key in PEM"},
		"verify " + dir + " --witness x":                                        {2, "not the verifier key of a witness"},
		"verify " + dir + " --checkpoint nowhere":                               {3, "no such file"},
		"verify " + dir + " --checkpoint " + good:                               {1, "tampered"},
		"verify":                                        {2, "accepts 1 arg"},
		"prove " + dir + " qm.books/0 50":               {5, "no checkpoint covers"},
		"prove " + dir + " qm.books/0 -1":               {2, "unknown shorthand flag"},
		"prove " + dir + " qm.books/0 x":                {2, "is not an offset"},
		"prove " + dir + " qm.nothing/0 1":              {2, "is not a partition"},
		"check-proof " + good:                           {0, "holds: record 7 of qm.books/0"},
		"check-proof " + good + " --signed-by " + pem:   {0, "by a signed checkpoint"},
		"check-proof " + good + " --signed-by " + other: {1, "signed by a key that was not given"},
		"check-proof " + bad:                            {1, "does not hold"},
		"check-proof " + pem:                            {2, "proof:"},
		"check-proof nowhere":                           {3, "no such file"},
		"schema nothing":                                {2, "has no schema"},
		"verfy":                                         {2, "did you mean verify?"},
		"verify " + dir + " --no-such-flag":             {2, "unknown flag"},
		"prove " + dir + " qm.books/0 50 -o json":       {5, `"error"`},
		"check-proof " + good + " -o yaml":              {2, "want one of text, json"},
	} {
		code, out, errs := does(strings.Fields(line)...)
		if code != want.code || !strings.Contains(out+errs, want.says) {
			t.Errorf("%s: exits %d with %q and %q, want %d and %q", line, code, out, errs, want.code, want.says)
		}
	}
	// A missing segment is incomplete, a changed one tampered.
	segments, err := filepath.Glob(filepath.Join(dir, "segments", "*", "*", "*"))
	if err != nil || len(segments) != 1 {
		t.Fatal(segments, err)
	}
	body, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(segments[0]); err != nil {
		t.Fatal(err)
	}
	if code, out, _ := does("verify", dir); code != 5 || !strings.Contains(out, "qm.books/0, offsets 0 to 49: the segment is missing") {
		t.Errorf("a missing segment: %d, %s", code, out)
	}
	body[len(body)/2] ^= 1
	if err := os.WriteFile(segments[0], body, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, _ := does("verify", dir); code != 1 || !strings.Contains(out, "tampered: segments/") {
		t.Errorf("a changed segment: %d, %s", code, out)
	}
}

// TestSchemas compares the published schemas with the types of the answers, key by key.
func TestSchemas(t *testing.T) {
	for name, answer := range map[string]reflect.Type{
		"verify": reflect.TypeFor[audit.Verified](), "prove": reflect.TypeFor[merkle.Proof](), "check-proof": reflect.TypeFor[checked](),
		"prove-growth": reflect.TypeFor[merkle.Growth](), "check-growth": reflect.TypeFor[grown](), "check-report": reflect.TypeFor[checkedReport](),
		"replay": reflect.TypeFor[replayed](), "as-of": reflect.TypeFor[row](), "diff": reflect.TypeFor[row](), "trail": reflect.TypeFor[step](),
		"sample": reflect.TypeFor[item](), "diff-exports": reflect.TypeFor[changed](),
	} {
		code, text, errs := does("schema", name)
		published, err := schemas.Audit.ReadFile("audit/" + name + ".schema.json")
		if code != 0 || err != nil || text != string(published) {
			t.Fatal(code, errs, err)
		}
		compare(t, name, []byte(text), answer)
	}
	var doc struct {
		Properties struct {
			Findings struct {
				Items json.RawMessage `json:"items"`
			} `json:"findings"`
		} `json:"properties"`
	}
	published, err := schemas.Audit.ReadFile("audit/verify.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(published, &doc); err != nil {
		t.Fatal(err)
	}
	compare(t, "findings", doc.Properties.Findings.Items, reflect.TypeFor[audit.Finding]())
}

// compare compares an object's schema with a struct: names, what may be absent, and that each has a
// description.
func compare(t *testing.T, name string, schema []byte, of reflect.Type) {
	t.Helper()
	var doc struct {
		Properties map[string]struct {
			Description string `json:"description"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	if err := json.Unmarshal(schema, &doc); err != nil {
		t.Fatal(err)
	}
	var required []string
	for i := range of.NumField() {
		key, options, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		if options == "" {
			required = append(required, key)
		}
		if doc.Properties[key].Description == "" {
			t.Errorf("%s: %s is not described", name, key)
		}
	}
	if len(doc.Properties) != of.NumField() || !slices.Equal(doc.Required, required) {
		t.Errorf("%s: has %d properties and requires %v, the answer has %d and always %v",
			name, len(doc.Properties), doc.Required, of.NumField(), required)
	}
}

// TestAnswers decodes each answer strictly into its type.
func TestAnswers(t *testing.T) {
	dir, _ := archived(t)
	for line, into := range map[string]any{
		"verify " + dir: &audit.Verified{}, "prove " + dir + " qm.books/0 3": &merkle.Proof{},
	} {
		code, out, errs := does(append(strings.Fields(line), "-o", "json")...)
		dec := json.NewDecoder(strings.NewReader(out))
		dec.DisallowUnknownFields()
		if err := dec.Decode(into); code != 0 || err != nil {
			t.Errorf("%s: %d, %v, %s", line, code, err, errs)
		}
	}
}

// TestReproducible builds the program in two places and compares it. It is one file that needs no
// library of the machine.
func TestReproducible(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program twice")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command")
	}
	var sums [2][sha256.Size]byte
	var path string
	for i := range sums {
		path = filepath.Join(t.TempDir(), "quartermaster-audit")
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", path, ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = sha256.Sum256(b)
	}
	if sums[0] != sums[1] {
		t.Errorf("two builds differ: %x and %x", sums[0], sums[1])
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil || info.Path != "quartermaster/cmd/quartermaster-audit" {
		t.Errorf("%+v, %v", info, err)
	}
	if runtime.GOOS != "linux" {
		return
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("it needs %v: %v", libraries, err)
	}
}
