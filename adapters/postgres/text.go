package postgres

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// Bounds on the bytes of a name in a column. A key must fit an index entry of the server, which has
// 2,700 bytes. A key has two names, that of usage_held has five.
const (
	maxKey  = 1200
	maxHeld = 400
)

// replacementPrefix is the prefix of the replacement for a name that a column cannot hold.
const replacementPrefix = "\uFFFD"

// columnText returns a name as a column can hold it. It replaces a name that Postgres cannot hold
// as text, that is very long, or that looks like a replacement itself. exact is false for a
// replacement. Different names have different texts.
func columnText(name string, most int) (text string, exact bool) {
	if len(name) <= most && utf8.ValidString(name) && strings.IndexByte(name, 0) < 0 && !strings.HasPrefix(name, replacementPrefix) {
		return name, true
	}
	sum := sha256.Sum256([]byte(name))
	short := name[:min(len(name), 64)]
	return replacementPrefix + plainText(short) + " " + hex.EncodeToString(sum[:]), false
}

// plainText replaces bytes that the server does not accept as text.
func plainText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, replacementPrefix), "\x00", replacementPrefix)
}

// jsonText replaces NUL characters in JSON, which the server's jsonb does not accept. It changes b.
func jsonText(b []byte) []byte {
	out := b
	for i := 0; i+6 <= len(out); i++ {
		if out[i] != '\\' {
			continue
		}
		if string(out[i:i+6]) == `\u0000` {
			copy(out[i:], `\ufffd`)
		}
		i++ // the escaped character does not begin an escape itself
	}
	return out
}

// Parameters are sent in the server's binary form, which saves both sides the conversion to
// hexadecimal digits.

const (
	oidBytea = 17
	oidInt8  = 20
	oidText  = 25
	oidJSONB = 3802
)

// array builds a one-dimensional array in the server's binary form: number of dimensions, whether
// there are nulls, type, length, lower bound, then each element after its length.
type array struct {
	b []byte
	n int
}

const arrayHead = 20

func newArray(oid uint32, bytes int) *array {
	a := &array{b: make([]byte, arrayHead, arrayHead+bytes)}
	binary.BigEndian.PutUint32(a.b[0:], 1)
	binary.BigEndian.PutUint32(a.b[4:], 1)
	binary.BigEndian.PutUint32(a.b[8:], oid)
	binary.BigEndian.PutUint32(a.b[16:], 1)
	return a
}

func (a *array) text(s string) {
	a.n++
	a.b = append(binary.BigEndian.AppendUint32(a.b, uint32(len(s))), s...)
}

func (a *array) bytes(p []byte) {
	if p == nil {
		a.null()
		return
	}
	a.n++
	a.b = append(binary.BigEndian.AppendUint32(a.b, uint32(len(p))), p...)
}

func (a *array) int(v int64) {
	a.n++
	a.b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(a.b, 8), uint64(v))
}

// json adds JSON text, after the version number of jsonb's binary form.
func (a *array) json(p []byte) {
	if p == nil {
		a.null()
		return
	}
	a.n++
	a.b = append(append(binary.BigEndian.AppendUint32(a.b, uint32(len(p)+1)), 1), p...)
}

func (a *array) null() {
	a.n++
	a.b = binary.BigEndian.AppendUint32(a.b, 0xffffffff)
}

// value returns the array as a parameter. The connection MUST have binary_parameters.
func (a *array) value() []byte {
	binary.BigEndian.PutUint32(a.b[12:], uint32(a.n))
	return a.b
}
