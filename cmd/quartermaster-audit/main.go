// Command quartermaster-audit verifies an archive of the log and proves records from it, on an auditor's
// own machine. It needs a copy of the archive, and neither the server nor a network.
//
// What the word of each answer rests on is in docs/how-to/prove-the-log.md.
package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"quartermaster/adapters/buildinfo"
	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster-audit/internal/audit"
	"quartermaster/domain"
	"quartermaster/domain/merkle"
	"quartermaster/schemas"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program without its process, for tests.
func run(args []string, stdout, stderr io.Writer) int {
	p := &program{out: stdout, err: stderr}
	root := p.root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	var no *answer
	code := commandline.ExitOf(err)
	switch {
	case err == nil:
	case errors.As(err, &no):
		code = no.code
		fmt.Fprintf(stderr, "quartermaster-audit: %v\n", err)
	case p.json() || commandline.AsksJSON(args):
		if errors.Is(err, audit.ErrNoCheckpoint) {
			code = commandline.ExitIncomplete
		}
		_ = commandline.WriteJSON(stdout, map[string]string{"error": err.Error()}) // the exit code says it too
	default:
		if errors.Is(err, audit.ErrNoCheckpoint) {
			code = commandline.ExitIncomplete
		}
		fmt.Fprintf(stderr, "quartermaster-audit: %v\n", err)
	}
	return code
}

// answer is the error of a command that has answered no.
type answer struct {
	code int
	why  string
}

func (a *answer) Error() string { return a.why }

// program holds what all commands share.
type program struct {
	out, err io.Writer
	output   string
}

func (p *program) json() bool { return p.output == "json" }

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "quartermaster-audit",
		Short: "Verify an archive of the log, and prove records from it, offline",
		Long: `Verifies an archive of Quartermaster's log and proves records from it. It reads a copy of the archive
in a directory, and needs neither the server nor a network. Its code is independent of the server's.`,
		Example:       "  quartermaster-audit verify /mnt/archive --signed-by checkpoint.pub\n  quartermaster-audit prove /mnt/archive qm.billing/0 4711 > proof.json\n  quartermaster-audit check-proof proof.json --signed-by checkpoint.pub",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	commandline.OutputFlag(root.PersistentFlags(), &p.output, "output: text or json", "text", "json")
	root.AddCommand(p.verifyCommand(), p.proveCommand(), p.checkCommand(), p.schemaCommand(), p.replayCommand(), p.asOfCommand(),
		p.diffCommand(), p.diffExportsCommand(), p.trailCommand(), p.proveGrowthCommand(), p.checkGrowthCommand(), p.checkReportCommand(), p.sampleCommand())
	v := buildinfo.Of("quartermaster-audit", "proof/"+strings.TrimPrefix(merkle.ProofFormat, "quartermaster.proof/"))
	if err := commandline.SetVersion(root, v.Version, v); err != nil {
		panic(err) // a struct of strings
	}
	commandline.Strict(root)
	return root
}

// open opens the archive in a directory.
func open(dir string) (*audit.Archive, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, commandline.Usagef("%s is not a directory", dir)
	}
	a, err := audit.Open(os.DirFS(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, commandline.Usagef("there is no archive in %s: archive.json is missing%s", dir, nearby(dir))
	}
	return a, err
}

// nearby says which folders below a directory hold an archive: a log's archive is in a folder of its own.
func nearby(dir string) string {
	var found []string
	for _, pattern := range []string{"*/archive.json", "*/*/archive.json"} {
		names, err := fs.Glob(os.DirFS(dir), pattern)
		if err != nil {
			continue // the pattern is right, so the directory cannot be read
		}
		for _, name := range names {
			found = append(found, filepath.Join(dir, filepath.FromSlash(path.Dir(name))))
		}
	}
	switch len(found) {
	case 0:
		return ""
	case 1:
		return "; there is one in " + found[0]
	}
	return "; there are some in " + domain.Clip(strings.Join(found, ", "), 500)
}

// trust are the flags that say whose signatures count.
type trust struct {
	signedBy  []string
	witnesses []string
}

func (t *trust) flags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&t.signedBy, "signed-by", nil,
		"who signs checkpoints: a public key file in PEM, or a verifier key; may be repeated (default: not verified)")
	cmd.Flags().StringArrayVar(&t.witnesses, "witness", nil, "verifier key of a witness that must have cosigned; may be repeated (default none)")
}

// load returns the keys that are named, and the witnesses' verifiers.
func (t *trust) load() (keys []ed25519.PublicKey, witnesses []note.Verifier, err error) {
	for _, named := range t.signedBy {
		key, err := publicKey(named)
		if err != nil {
			return nil, nil, err
		}
		keys = append(keys, key)
	}
	for _, text := range t.witnesses {
		v, err := merkle.WitnessVerifier(text)
		if err != nil {
			return nil, nil, &commandline.UsageError{Err: err}
		}
		witnesses = append(witnesses, v)
	}
	return keys, witnesses, nil
}

// publicKey reads a verifier key (C2SP signed-note), or a file with a public key in PEM.
func publicKey(named string) (ed25519.PublicKey, error) {
	const algorithm = 1 // Ed25519 in a verifier key
	if _, err := note.NewVerifier(named); err == nil {
		parts := strings.SplitN(named, "+", 3)
		b, err := base64.StdEncoding.DecodeString(parts[2])
		if err != nil || len(b) != 1+ed25519.PublicKeySize || b[0] != algorithm {
			return nil, commandline.Usagef("%q is not the verifier key of an Ed25519 key", domain.Clip(named, 100))
		}
		return b[1:], nil
	}
	text, err := os.ReadFile(named)
	if err != nil {
		return nil, err
	}
	block, rest := pem.Decode(text)
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, commandline.Usagef("%s is not one public key in PEM", named)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, commandline.Usagef("%s is not a public key: %v", named, err)
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, commandline.Usagef("%s is a key of another kind than Ed25519", named)
	}
	return key, nil
}

func (p *program) verifyCommand() *cobra.Command {
	var (
		trust  trust
		copies []string
	)
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Verify an archive: exit 0 intact, 1 tampered, 5 incomplete",
		Long: `Verify reads the whole archive in a directory. It computes the Merkle tree of every partition from the
records, compares it with the manifests, these with the heads, and the heads with the checkpoints.

It exits with 0 if everything is there, unchanged, and covered by a checkpoint; with 1 if something was
changed; with 5 if something is missing, or newer than every checkpoint. It names the records that
cannot be relied on, in up to 100 findings of each partition.

With --signed-by each checkpoint must have the signature of that key. Give it once for each key that signed
checkpoints. A checkpoint by another key does not count; verify names that key, and exits with 5. With --witness only checkpoints that every
such witness cosigned count. With --checkpoint a copy that was kept elsewhere must agree with the
archive: this is what finds a history that was written anew by somebody who has the key.`,
		Example: "  quartermaster-audit verify /mnt/archive --signed-by checkpoint.pub\n" +
			"  quartermaster-audit verify /mnt/archive --signed-by checkpoint.pub --checkpoint kept/last-year.note\n" +
			"  quartermaster-audit verify /mnt/archive --signed-by checkpoint.pub --witness \"$WITNESS_KEY\" -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			keys, witnesses, err := trust.load()
			if err != nil {
				return err
			}
			t := audit.Trust{Keys: keys, Witnesses: witnesses}
			for _, name := range copies {
				text, err := os.ReadFile(name)
				if err != nil {
					return err
				}
				t.Copies = append(t.Copies, audit.Copy{Name: name, Text: text})
			}
			a, err := open(args[0])
			if err != nil {
				return err
			}
			ans, err := a.Verify(t, nil)
			if err != nil {
				return err
			}
			if err := p.showVerified(ans); err != nil {
				return err
			}
			switch {
			case ans.Of(audit.Tampered):
				return &answer{commandline.ExitNo, "the archive was changed"}
			case !ans.Intact:
				why := "the archive is incomplete, or newer than its checkpoints"
				if ans.Of(audit.UnknownKey) {
					why = "checkpoints were signed by keys that were not given: give the public key of each signer with --signed-by"
				}
				return &answer{commandline.ExitIncomplete, why}
			}
			return nil
		},
	}
	trust.flags(cmd)
	cmd.Flags().StringArrayVar(&copies, "checkpoint", nil, "file with a checkpoint that was kept elsewhere; may be repeated (default none)")
	return cmd
}

func (p *program) showVerified(v *audit.Verified) error {
	if p.json() {
		return commandline.WriteJSON(p.out, v)
	}
	for i := range v.Findings {
		fmt.Fprintln(p.out, v.Findings[i].String())
	}
	fmt.Fprintf(p.out, "archive %s of log %s\nread %d records in %d segments (%d bytes), %d heads, %d checkpoints\n",
		v.Archive, v.Log, v.Records, v.Segments, v.Bytes, v.Heads, v.Checkpoints)
	signed := "signatures were not verified: give --signed-by"
	if v.Signed {
		signed = "signatures verified"
	}
	fmt.Fprintf(p.out, "checkpoints and signed manifests cover %d records; %s\n", v.Covered, signed)
	if v.Intact {
		fmt.Fprintln(p.out, "intact")
	}
	return nil
}

func (p *program) proveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "prove DIR PARTITION OFFSET",
		Short: "Prove that a record is in the log",
		Long: `Prove writes a proof of one record, by the newest checkpoint of the archive: the record, the path of
hashes from it to the root that the checkpoint signs, and the checkpoint. The proof is a JSON document
that needs nothing else. A record that no checkpoint covers has none; prove then exits with 5.`,
		Example: "  quartermaster-audit prove /mnt/archive qm.billing/0 4711 > proof.json\n" +
			"  quartermaster-audit prove /mnt/archive qm.books/0 12 | quartermaster-audit check-proof -",
		Args: cobra.ExactArgs(3),
		RunE: func(_ *cobra.Command, args []string) error {
			offset, err := strconv.ParseInt(args[2], 10, 64)
			if err != nil || offset < 0 {
				return commandline.Usagef("%q is not an offset", domain.Clip(args[2], 40))
			}
			at, err := domain.ParsePosition(args[1] + "=" + strconv.FormatInt(offset, 10))
			if err != nil {
				return commandline.Usagef("%q is not a partition: write for example qm.billing/0", domain.Clip(args[1], 40))
			}
			a, err := open(args[0])
			if err != nil {
				return err
			}
			for tp := range at {
				proof, err := a.Prove(tp, offset)
				if err != nil {
					return err
				}
				return commandline.WriteJSON(p.out, proof)
			}
			return nil
		},
	}
}

// checked is the answer of check-proof.
type checked struct {
	Holds     bool   `json:"holds"`
	Reason    string `json:"reason,omitempty"` // why it does not
	Log       string `json:"log,omitempty"`
	Partition string `json:"partition,omitempty"`
	Offset    int64  `json:"offset"`
	// Time is when the record was appended, by its producer's clock.
	Time domain.Instant `json:"time,omitempty"`
	Key  string         `json:"key,omitempty"`
	// Headers are those of the record, by name; of several with a name the last one.
	Headers map[string]string `json:"headers,omitempty"`
	Value   []byte            `json:"value,omitempty"` // of the record, in base64
	// Span is whether there is no record but a batch that nobody can read.
	Span  bool  `json:"span"`
	Heads int64 `json:"heads"` // that the checkpoint stands for
	// Signed is whether the signature was verified; Witnesses are those whose cosignatures were.
	Signed    bool     `json:"signed"`
	Witnesses []string `json:"witnesses,omitempty"`
}

func (p *program) checkCommand() *cobra.Command {
	var trust trust
	cmd := &cobra.Command{
		Use:   "check-proof FILE",
		Short: "Check a proof, and show what it proves",
		Long: `Check-proof checks a proof that "prove" wrote, and shows the record. It reads no archive. It exits with 1
if the proof does not hold or lacks a signature. "-" is standard input.

Without --signed-by the proof shows only that the record belongs to the checkpoint in the file, which
anybody can write.`,
		Example: "  quartermaster-audit check-proof proof.json --signed-by checkpoint.pub\n" +
			"  quartermaster-audit check-proof proof.json --signed-by checkpoint.pub --witness \"$WITNESS_KEY\" -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, witnesses, err := trust.load()
			if err != nil {
				return err
			}
			text, err := p.input(cmd, args[0])
			if err != nil {
				return err
			}
			proof, err := merkle.ParseProof(text)
			if err != nil {
				return commandline.Usagef("%s: %v", args[0], err)
			}
			ans := check(proof, keys, witnesses)
			if err := p.showChecked(ans); err != nil {
				return err
			}
			if !ans.Holds {
				return &answer{commandline.ExitNo, "the proof does not hold"}
			}
			return nil
		},
	}
	trust.flags(cmd)
	return cmd
}

const maxProof = 128 << 20 // bytes; a record may have 64 MiB

func (p *program) input(cmd *cobra.Command, name string) ([]byte, error) {
	in := cmd.InOrStdin()
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxProof+1))
	if err == nil && len(text) > maxProof {
		err = commandline.Usagef("%s has more than %d bytes", name, maxProof)
	}
	return text, err
}

func check(proof *merkle.Proof, keys []ed25519.PublicKey, witnesses []note.Verifier) *checked {
	proven, err := proof.Check(witnesses...)
	if err == nil {
		err = signedBy([]byte(proof.Checkpoint), keys)
	}
	if err != nil {
		return refuted(proof, err)
	}
	ans := &checked{
		Holds: true, Log: proven.Log, Partition: proof.Partition, Offset: proof.Offset, Time: proven.Record.Time,
		Key: string(proven.Record.Key), Value: proven.Record.Value, Span: proven.Record.Span != nil,
		Heads: proven.Heads, Signed: len(keys) > 0,
	}
	for _, h := range proven.Record.Headers {
		if ans.Headers == nil {
			ans.Headers = map[string]string{}
		}
		ans.Headers[h.Key] = string(h.Value)
	}
	for _, w := range witnesses {
		ans.Witnesses = append(ans.Witnesses, w.Name())
	}
	return ans
}

// signedBy fails unless one of the keys, if there are any, signed a checkpoint.
func signedBy(checkpoint []byte, keys []ed25519.PublicKey) error {
	c, err := merkle.OpenNote(checkpoint)
	if err != nil {
		return err
	}
	signers, err := merkle.Signers(checkpoint, c.Origin, keys)
	if err == nil {
		_, err = merkle.OpenNote(checkpoint, signers...)
	}
	return err
}

// refuted is the answer about a proof that does not hold, with the reason.
func refuted(proof *merkle.Proof, why error) *checked {
	return &checked{Reason: why.Error(), Partition: proof.Partition, Offset: proof.Offset}
}

func (p *program) showChecked(c *checked) error {
	if p.json() {
		return commandline.WriteJSON(p.out, c)
	}
	if !c.Holds {
		fmt.Fprintf(p.out, "does not hold: %s\n", c.Reason)
		return nil
	}
	fmt.Fprintf(p.out, "holds: record %d of %s in log %s\n", c.Offset, c.Partition, c.Log)
	if c.Span {
		fmt.Fprintln(p.out, "there is no record at this offset that can be read")
	} else {
		fmt.Fprintf(p.out, "time   %s\nkey    %q\nvalue  %d bytes\n", c.Time, c.Key, len(c.Value))
		for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
			fmt.Fprintf(p.out, "%s: %q\n", name, c.Headers[name])
		}
	}
	by := "an unverified checkpoint: give --signed-by"
	if c.Signed {
		by = "a signed checkpoint"
	}
	fmt.Fprintf(p.out, "by %s of %d heads", by, c.Heads)
	if len(c.Witnesses) > 0 {
		fmt.Fprintf(p.out, ", cosigned by %s", strings.Join(c.Witnesses, ", "))
	}
	fmt.Fprintln(p.out)
	return nil
}

func (p *program) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema NOUN",
		Short: "Print the JSON Schema of an answer",
		Long: `Schema prints the JSON Schema (draft 2020-12) of what a command answers with -o json. The noun is the
command. Where a command writes one document a line, the schema is of a line.`,
		Example: "  quartermaster-audit schema verify\n  quartermaster-audit schema prove > proof.schema.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := schemas.Audit.ReadFile("audit/" + args[0] + ".schema.json")
			if err != nil {
				return commandline.Usagef("%q has no schema; want the name of a command that answers", domain.Clip(args[0], 40))
			}
			_, err = p.out.Write(text)
			return err
		},
	}
}
