package merkle

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	formats "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"

	"quartermaster/domain"
)

// Origin returns the first line of the checkpoints of a log's heads, which is also the name of the key
// that signs them.
func Origin(log string) string { return "quartermaster.log/" + log }

// ReportOrigin is [Origin] for reports about what a log has.
func ReportOrigin(log string) string { return Origin(log) + "/report" }

// PartitionOrigin is [Origin] for the checkpoints of a partition, which are in manifests.
func PartitionOrigin(log string, tp domain.TopicPartition) string {
	return Origin(log) + "/" + tp.String()
}

// Checkpoint is the text of a C2SP checkpoint (https://c2sp.org/tlog-checkpoint): origin, number of
// leaves and root, a line each.
type Checkpoint struct {
	Origin string
	Size   int64
	Root   Hash
}

// String returns the text, which is signed as a note.
func (c *Checkpoint) String() string { return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, c.Root) }

// ParseCheckpoint parses the text of a checkpoint. It refuses extension lines, because we write none.
func ParseCheckpoint(text string) (c Checkpoint, err error) {
	f := strings.Split(text, "\n")
	if len(f) != 4 {
		return c, errors.New("checkpoint has not three lines")
	}
	c.Origin = f[0]
	if c.Size, err = strconv.ParseInt(f[1], 10, 64); err == nil {
		err = c.Root.UnmarshalText([]byte(f[2]))
	}
	if err != nil || c.Origin == "" || c.Size < 0 || c.String() != text {
		return c, errors.New("checkpoint is not in its canonical form")
	}
	return c, nil
}

// Sign returns the checkpoint as a signed note (https://c2sp.org/signed-note). The key has the name of
// the origin. Equal checkpoints and keys give equal notes.
func (c *Checkpoint) Sign(key ed25519.PrivateKey) ([]byte, error) {
	signed, err := SignText(c.Origin, c.String(), key)
	if err != nil {
		return nil, fmt.Errorf("sign checkpoint: %w", err)
	}
	return signed, nil
}

// SignText returns a text as a signed note. The text MUST be UTF-8, end with a newline, and have no other control
// characters. The key has the name of the origin.
func SignText(origin, text string, key ed25519.PrivateKey) ([]byte, error) {
	v, err := Verifier(origin, key.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	return note.Sign(&note.Note{Text: text}, &signer{v, key})
}

// OpenText returns the text of a signed note that one of the keys signed as the origin. It fails with [ErrUnknownKey] if
// only other keys did, and with [ErrSignature] if nobody did or the signature is not valid.
func OpenText(origin string, signed []byte, keys []ed25519.PublicKey) (text string, by note.Verifier, err error) {
	var unverified *note.UnverifiedNoteError
	if _, err := note.Open(signed, note.VerifierList()); !errors.As(err, &unverified) {
		return "", nil, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	signers, err := Signers(signed, origin, keys)
	if err != nil {
		return "", nil, err
	}
	if len(signers) == 0 {
		return "", nil, fmt.Errorf("%w: no key was given", ErrSignature)
	}
	n, err := note.Open(signed, note.VerifierList(signers...))
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	return n.Text, signers[0], nil
}

// VerifierKey returns the key of an origin in the form of C2SP signed-note. It fails if the origin cannot be the name of
// a key.
func VerifierKey(origin string, key ed25519.PublicKey) (string, error) {
	text, err := note.NewEd25519VerifierKey(origin, key)
	if err != nil {
		return "", fmt.Errorf("%q: %w", origin, err)
	}
	return text, nil
}

// Verifier returns the verifier of an origin's signatures by a key. It fails if the origin cannot be
// the name of a key.
func Verifier(origin string, key ed25519.PublicKey) (note.Verifier, error) {
	text, err := VerifierKey(origin, key)
	if err != nil {
		return nil, err
	}
	v, err := note.NewVerifier(text)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", origin, err)
	}
	return v, nil
}

// signer implements [note.Signer].
type signer struct {
	note.Verifier
	key ed25519.PrivateKey
}

func (s *signer) Sign(msg []byte) ([]byte, error) { return ed25519.Sign(s.key, msg), nil }

// ErrSignature means that a note lacks the signature that it must have.
var ErrSignature = errors.New("no valid signature")

// OpenNote parses a checkpoint in a signed note. With verifiers, every one of them MUST have signed it;
// it fails with [ErrSignature] if one has not. Without, nothing is known of who signed it.
func OpenNote(text []byte, verifiers ...note.Verifier) (Checkpoint, error) {
	n, err := note.Open(text, note.VerifierList(verifiers...))
	var unsigned *note.UnverifiedNoteError
	switch {
	case errors.As(err, &unsigned):
		n = unsigned.Note
	case err != nil:
		return Checkpoint{}, fmt.Errorf("checkpoint: %w", err)
	}
	c, err := ParseCheckpoint(n.Text)
	if err != nil {
		return c, err
	}
	for _, v := range verifiers {
		signed := false
		for _, s := range n.Sigs {
			signed = signed || s.Name == v.Name() && s.Hash == v.KeyHash()
		}
		if !signed {
			return c, fmt.Errorf("checkpoint of %d: %w of %s", c.Size, ErrSignature, v.Name())
		}
	}
	return c, nil
}

// ErrUnknownKey means that a note is signed under the name of its origin, and by none of the given keys. It says
// nothing about whether the signature is valid: ask for the key, by the name and hash in the message.
var ErrUnknownKey = errors.New("signed by a key that was not given")

// Signers returns the verifiers of those of some keys that signed a note as its origin, by the names and hashes on its
// signature lines. The signatures are not verified: give the verifiers to [OpenNote]. Without keys there are none. It
// fails with [ErrUnknownKey] if only other keys signed, and with [ErrSignature] if nobody signed as the origin.
func Signers(text []byte, origin string, keys []ed25519.PublicKey) ([]note.Verifier, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	_, err := note.Open(text, note.VerifierList())
	var unverified *note.UnverifiedNoteError
	if !errors.As(err, &unverified) {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	given := map[uint32]note.Verifier{}
	for _, key := range keys {
		v, err := Verifier(origin, key)
		if err != nil {
			return nil, err
		}
		given[v.KeyHash()] = v
	}
	var signers []note.Verifier
	var others []string
	for _, s := range unverified.Note.UnverifiedSigs {
		if s.Name != origin {
			continue
		}
		if v := given[s.Hash]; v != nil {
			signers = append(signers, v)
		} else {
			others = append(others, fmt.Sprintf("%s+%08x", s.Name, s.Hash))
		}
	}
	switch {
	case len(signers) > 0:
		return signers, nil
	case len(others) > 0:
		return nil, fmt.Errorf("%w: %s", ErrUnknownKey, strings.Join(others, ", "))
	}
	return nil, fmt.Errorf("%w of %s", ErrSignature, origin)
}

// WitnessVerifier returns the verifier of a witness's cosignatures (https://c2sp.org/tlog-cosignature)
// from its verifier key: name, hash and key, joined by +.
func WitnessVerifier(key string) (note.Verifier, error) {
	v, err := formats.NewVerifierForCosignatureV1(key)
	if err != nil {
		return nil, fmt.Errorf("%q is not the verifier key of a witness: %w", domain.Clip(key, 100), err)
	}
	return v, nil
}

// Cosigned adds to a signed note those of the given signature lines that are a witness's. It fails with
// [ErrSignature] unless there is one and it is of the text of the note.
func Cosigned(signed, lines []byte, witness note.Verifier) ([]byte, error) {
	text := bodyOf(signed)
	n, err := note.Open(append(append(text, '\n'), lines...), note.VerifierList(witness))
	if err != nil {
		return nil, fmt.Errorf("%w of %s: %v", ErrSignature, witness.Name(), err)
	}
	for _, s := range n.Sigs {
		signed = fmt.Appendf(signed, "— %s %s\n", s.Name, s.Base64)
	}
	return signed, nil
}

// bodyOf returns the text of a signed note.
func bodyOf(signed []byte) []byte {
	return slices.Clone(signed[:bytes.LastIndex(signed, []byte("\n\n"))+1])
}

// CosignedAt returns when a witness says that it saw the checkpoint in a note. It fails with
// [ErrSignature] if the witness has not signed it.
func CosignedAt(signed []byte, witness note.Verifier) (domain.Instant, error) {
	n, err := note.Open(signed, note.VerifierList(witness))
	if err != nil || len(n.Sigs) == 0 {
		return 0, fmt.Errorf("%w of %s", ErrSignature, witness.Name())
	}
	at, err := formats.CoSigV1Timestamp(n.Sigs[0])
	return domain.InstantOf(at), err
}
