package attribution

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"quartermaster/domain"
)

// Ref names one allocation.
type Ref struct {
	Issuer, Account, Line          string
	Hour                           domain.Instant // 0: the whole charge period
	Workspace, Cluster, Deployment string
	Component                      Component
}

// refFields are the fields of a reference, in their order.
var refFields = [...]string{"issuer", "account", "line", "hour", "workspace", "cluster", "deployment", "component"}

// Ref returns the allocation's reference in the form that [ParseRef] reads:
//
//	issuer=AWS;account=123;line=l%201;hour=2026-05-01T00:00:00Z;workspace=research;cluster=c1;deployment=;component=allocated
//
// It is valid as long as the line keeps its id, whatever else a bill contains.
func (l *Allocation) Ref() string { return refOf(l).String() }

func refOf(l *Allocation) Ref {
	return Ref{l.Line.Issuer, l.Line.Account, l.Line.ID, l.Hour, l.Workspace, l.Cluster, l.Deployment, l.Component}
}

// String returns the reference's text.
func (r Ref) String() string {
	var b strings.Builder
	values := [...]string{
		r.Issuer, r.Account, r.Line, r.Hour.String(), r.Workspace, r.Cluster, r.Deployment, r.Component.String(),
	}
	size := 0
	for i, v := range values {
		size += len(refFields[i]) + len("=;") + len(v)
	}
	b.Grow(size)
	for i, v := range values {
		if i > 0 {
			b.WriteByte(';')
		}
		b.WriteString(refFields[i])
		b.WriteByte('=')
		escape(&b, v)
	}
	return b.String()
}

// MarshalText writes what [Ref.String] returns.
func (r Ref) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what [ParseRef] reads.
func (r *Ref) UnmarshalText(b []byte) (err error) {
	*r, err = ParseRef(string(b))
	return err
}

const hex = "0123456789ABCDEF"

// escape writes a value without separator characters: every byte that is not a letter, a digit or
// one of - . _ : / becomes %XX. Letters of all scripts are kept if the text is valid UTF-8.
func escape(b *strings.Builder, s string) {
	n := 0
	for n < len(s) && plainBytes[s[n]] {
		n++
	}
	if n == len(s) { // nearly every name
		b.WriteString(s)
		return
	}
	valid := utf8.ValidString(s)
	from := 0
	for i := n; i < len(s); i++ {
		c := s[i]
		if plainBytes[c] || c >= utf8.RuneSelf && valid {
			continue
		}
		b.WriteString(s[from:i])
		from = i + 1
		b.WriteByte('%')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	b.WriteString(s[from:])
}

var plainBytes = func() (of [256]bool) {
	for c := range of {
		of[c] = plain(byte(c))
	}
	return of
}()

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._:/", c) >= 0
}

func unescape(s string) (string, error) {
	if !strings.Contains(s, "%") {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("%q ends in an escape", s)
		}
		hi, lo := strings.IndexByte(hex, s[i+1]), strings.IndexByte(hex, s[i+2])
		if hi < 0 || lo < 0 {
			return "", fmt.Errorf("%q is no escape", s[i:i+3])
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	return b.String(), nil
}

// ParseRef reads a reference. Each allocation has exactly one valid text.
func ParseRef(s string) (Ref, error) {
	fields := strings.Split(s, ";")
	if len(fields) != len(refFields) {
		return Ref{}, fmt.Errorf("allocation %q has %d fields, want %s", s, len(fields), strings.Join(refFields[:], ", "))
	}
	var v [len(refFields)]string
	for i, f := range fields {
		value, ok := strings.CutPrefix(f, refFields[i]+"=")
		if !ok {
			return Ref{}, fmt.Errorf("allocation %q: field %d is %q, want %s=", s, i+1, f, refFields[i])
		}
		var err error
		if v[i], err = unescape(value); err != nil {
			return Ref{}, fmt.Errorf("allocation %q: %s: %w", s, refFields[i], err)
		}
	}
	r := Ref{Issuer: v[0], Account: v[1], Line: v[2], Workspace: v[4], Cluster: v[5], Deployment: v[6]}
	if err := r.Hour.UnmarshalText([]byte(v[3])); err != nil {
		return Ref{}, fmt.Errorf("allocation %q: %w", s, err)
	}
	var err error
	if r.Component, err = ParseComponent(v[7]); err != nil {
		return Ref{}, fmt.Errorf("allocation %q: %w", s, err)
	}
	if r.String() != s {
		return Ref{}, fmt.Errorf("allocation %q: is written %q", s, r)
	}
	return r, nil
}
