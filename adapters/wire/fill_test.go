package wire

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
)

// filler sets the fields of an event, in the order of the struct.
type filler interface {
	text(field string) string
	number(field string, most uint64) uint64
	bool(field string) bool
	decimal(field string) domain.Decimal
	length(field string) int // of a list, a map or a byte string; 0 also for optional ones
}

// fill gives every field a value, by reflection.
func fill(f filler, v reflect.Value, field string) {
	switch p := v.Addr().Interface().(type) {
	case *domain.Instant:
		*p = domain.Instant(f.number(field, uint64(endOfTime-1)))
		return
	case *domain.Decimal:
		*p = f.decimal(field)
		return
	case *domain.NullDecimal:
		if f.length(field) > 0 {
			*p = decimal.NewNullDecimal(f.decimal(field))
		}
		return
	case *domain.GPUID:
		if f.length(field) > 0 {
			*p = domain.GPUID(digest(f, field)[:16])
		}
		return
	case *[]byte:
		if f.length(field) > 0 {
			*p = digest(f, field)
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(f.text(field))
	case reflect.Bool:
		v.SetBool(f.bool(field))
	case reflect.Uint32:
		v.SetUint(f.number(field, math.MaxUint32))
	case reflect.Uint64:
		v.SetUint(f.number(field, math.MaxUint64))
	case reflect.Int32:
		v.SetInt(int64(int32(f.number(field, math.MaxUint32))))
	case reflect.Int64:
		v.SetInt(int64(f.number(field, math.MaxUint64)))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(f, v.Field(i), v.Type().Field(i).Name)
		}
	case reflect.Pointer:
		if f.length(field) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(f, v.Elem(), field)
		}
	case reflect.Slice:
		if n := f.length(field); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(f, v.Index(i), field)
			}
		}
	case reflect.Map:
		if n := f.length(field); n > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range n {
				v.SetMapIndex(reflect.ValueOf(f.text(field)), reflect.ValueOf(f.text(field)))
			}
		}
	default:
		panic("no filler for " + v.Type().String())
	}
}

func digest(f filler, field string) []byte {
	h := sha256.Sum256(fmt.Append(nil, f.number(field, math.MaxUint64)))
	return h[:]
}

// counter gives every field a unique non-zero value.
type counter struct{ n uint64 }

func (c *counter) next() uint64 { c.n++; return c.n }

func (c *counter) text(field string) string {
	return fmt.Sprintf("%s-%d", strings.ToLower(field), c.next())
}
func (c *counter) number(field string, most uint64) uint64 {
	switch {
	case field == "Length": // of a sample's interval
		return uint64(600 * domain.Second)
	case most < math.MaxInt64 && most > uint64(endOfTime-2*maxInterval): // a time
		return 1780272000e9 + c.next()*uint64(domain.Hour)
	}
	return 1000 + c.next()
}
func (c *counter) bool(string) bool  { return true }
func (c *counter) length(string) int { return 2 }
func (c *counter) decimal(string) domain.Decimal {
	return decimal.New(-1234567890123456789, -10).Sub(decimal.New(int64(c.next()), 0))
}

// drawer fills fields with values that rapid draws.
type drawer struct{ t *rapid.T }

var (
	anyText  = rapid.Map(rapid.StringN(0, 12, -1), func(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", "") })
	someText = rapid.Map(anyText, func(s string) string { return "k" + s })
)

func (d drawer) text(field string) string {
	switch field {
	case "Source", "Workspace", "Cluster", "Node", // required in keys
		"Entity", "Provider", "InvoiceIssuerName", "BillingAccountID", "Base", "Quote": // parts of keys
		return someText.Draw(d.t, field)
	}
	return anyText.Draw(d.t, field)
}
func (d drawer) number(field string, most uint64) uint64 {
	return rapid.Uint64Range(0, most).Draw(d.t, field)
}
func (d drawer) bool(field string) bool  { return rapid.Bool().Draw(d.t, field) }
func (d drawer) length(field string) int { return rapid.IntRange(0, 3).Draw(d.t, field) }
func (d drawer) decimal(field string) domain.Decimal {
	return decimal.New(rapid.Int64().Draw(d.t, field), rapid.Int32Range(-maxPlaces, 30).Draw(d.t, field))
}

// envelope gives an event an envelope with all attributes that it may have.
func envelope(f filler, ev domain.Event) *domain.Envelope {
	if _, sample := ev.(*domain.NodeSampled); sample {
		f = identifiers{f}
	}
	env := &domain.Envelope{
		Source:      f.text("Source"),
		Incarnation: 2 + f.number("Incarnation", math.MaxUint32),
		Sequence:    1 + f.number("Sequence", math.MaxUint32),
		Time:        1 + domain.Instant(f.number("Time", uint64(endOfTime-1)-1)),
		Recorded:    domain.Instant(f.number("Recorded", uint64(endOfTime-1))),
		Subject:     f.text("Subject"),
		Workspace:   f.text("Workspace"),
		Cluster:     f.text("Cluster"),
		Event:       ev,
	}
	byWorkspace := []domain.Topic{domain.TopicWorkspaces, domain.TopicProcurement, domain.TopicAccess, domain.TopicIncidents}
	if !slices.Contains(byWorkspace, env.Topic()) && f.length("Workspace") == 0 {
		env.Workspace = ""
	}
	if f.bool("PreviousIncarnation") {
		env.Sequence, env.PreviousIncarnation = 1, env.Incarnation-1
		env.PreviousSequence = f.number("PreviousSequence", math.MaxUint64)
	}
	if f.bool("Cites") {
		env.Cites = fmt.Sprintf("%s/0@%d", env.Topic(), f.number("Cites", math.MaxInt64))
	}
	if s, ok := ev.(*domain.NodeSampled); ok {
		fillSample(f, s)
		env.Time, env.Subject = s.Interval.To, s.Node
	} else {
		fill(f, reflect.ValueOf(ev).Elem(), "")
	}
	if env.Topic() == domain.TopicBilling {
		env.Line = f.number("Line", math.MaxUint32)
	}
	return env
}

// identifiers fills text with identifiers that domain.Validate accepts.
type identifiers struct{ filler }

func (f identifiers) text(field string) string {
	s := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, f.filler.text(field))
	if s == "" && field == "Name" {
		return "k"
	}
	return s
}

// fillSample makes a consistent sample: arrays of one length, references within their tables.
func fillSample(f filler, s *domain.NodeSampled) {
	s.Node = f.text("Node")
	s.Interval.From = max(1, domain.Instant(f.number("From", uint64(endOfTime-1)-uint64(maxInterval))))
	s.Interval.To = s.Interval.From + 1 + domain.Instant(f.number("Length", math.MaxUint64)%uint64(maxInterval))
	s.SkewNanos = f.number("SkewNanos", math.MaxUint64)
	s.HoldersUnknown = f.length("HoldersUnknown") > 0
	s.ActivityField = uint32(1 + f.number("ActivityField", math.MaxUint32-1)%1004)
	for range f.length("Strings") {
		s.Strings = append(s.Strings, f.text("Name"), f.text("Name")+"-tail", f.text("Name"))
	}
	for range f.length("Parents") {
		s.Parents = append(s.Parents, digest(f, "Parents")[:16]...)
	}
	array := func(field string, n int, most uint64) []uint32 {
		if n == 0 || f.length(field) == 0 {
			return nil
		}
		vs := make([]uint32, n)
		for i := range vs {
			vs[i] = uint32(f.number(field, math.MaxUint64) % (most + 1))
		}
		return vs
	}
	names := uint64(len(s.Strings))
	for range f.length("Holders") {
		ref := func(field string) uint32 { return uint32(f.number(field, math.MaxUint64) % (names + 1)) }
		s.HolderWorkspace = append(s.HolderWorkspace, ref("HolderWorkspace"))
		s.HolderDeployment = append(s.HolderDeployment, ref("HolderDeployment"))
		s.HolderUnit = append(s.HolderUnit, ref("HolderUnit"))
	}
	entries := 9 * f.length("Entries")
	if entries == 0 { // then there are no instances, holders or names
		s.Parents, s.Strings, s.HolderWorkspace, s.HolderDeployment, s.HolderUnit = nil, nil, nil, nil, nil
	}
	for i := range entries {
		id := domain.DeriveGPUID("cluster", s.Node, i)
		s.IDs = append(s.IDs, id[:]...)
	}
	s.Parent = array("Parent", entries, uint64(len(s.Parents)/16))
	s.Profile = array("Profile", entries, names)
	s.Model = array("Model", entries, names)
	s.Replica = array("Replica", entries, math.MaxUint32)
	s.Holder = array("Holder", entries, uint64(len(s.HolderUnit)))
	s.ActivityMean = array("ActivityMean", entries, 1001)
	s.ActivityMin = array("ActivityMin", entries, 1001)
	s.ActivityMax = array("ActivityMax", entries, 1001)
	s.TensorActive = array("TensorActive", entries, 1001)
	s.DRAMActive = array("DRAMActive", entries, 1001)
	s.MemoryUsedMiB = array("MemoryUsedMiB", entries, math.MaxUint32)
	s.PowerWatts = array("PowerWatts", entries, 5000)
	s.TemperatureC = array("TemperatureC", entries, 130)
	s.SMClockMHz = array("SMClockMHz", entries, 1<<20)
	if entries > 0 {
		for i := range f.length("Other") {
			at, field := uint32(f.number("OtherEntry", math.MaxUint64)%uint64(entries)), uint32(f.number("OtherField", math.MaxUint32))
			if i > 0 && at <= s.OtherEntry[i-1] {
				if at = s.OtherEntry[i-1]; field <= s.OtherField[i-1] {
					field = s.OtherField[i-1] + 1
				}
				if field == 0 {
					break
				}
			}
			s.OtherEntry, s.OtherField = append(s.OtherEntry, at), append(s.OtherField, field)
			s.OtherValue = append(s.OtherValue, f.number("OtherValue", math.MaxUint64))
		}
	}
}

// signer is the key of all tests.
var signer = ed25519.NewKeyFromSeed([]byte("quartermaster tests, not secret!"))

// difference reports where two values differ, or "". Decimals are equal if their text is, and
// absent lists and maps equal empty ones.
func difference(a, b reflect.Value, path string) string {
	if d, ok := a.Interface().(domain.Decimal); ok {
		e := b.Interface().(domain.Decimal)
		if d.Exponent() < 0 && d.StringFixed(-d.Exponent()) == e.StringFixed(-e.Exponent()) || d.Exponent() >= 0 && d.Equal(e) {
			return ""
		}
		return fmt.Sprintf("%s: %v and %v", path, d, e)
	}
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			if d := difference(a.Field(i), b.Field(i), path+"."+a.Type().Field(i).Name); d != "" {
				return d
			}
		}
	case reflect.Slice:
		if a.Len() != b.Len() {
			return fmt.Sprintf("%s: %d and %d long", path, a.Len(), b.Len())
		}
		for i := range a.Len() {
			if d := difference(a.Index(i), b.Index(i), fmt.Sprintf("%s[%d]", path, i)); d != "" {
				return d
			}
		}
	case reflect.Pointer, reflect.Interface:
		if a.IsNil() || b.IsNil() {
			if a.IsNil() != b.IsNil() {
				return path + ": one is nil"
			}
			return ""
		}
		if a.Elem().Type() != b.Elem().Type() {
			return fmt.Sprintf("%s: %s and %s", path, a.Elem().Type(), b.Elem().Type())
		}
		return difference(a.Elem(), b.Elem(), path)
	case reflect.Map:
		if a.Len() != b.Len() || a.Len() > 0 && !reflect.DeepEqual(a.Interface(), b.Interface()) {
			return fmt.Sprintf("%s: %v and %v", path, a, b)
		}
	default:
		if a.Interface() != b.Interface() {
			return fmt.Sprintf("%s: %v and %v", path, a, b)
		}
	}
	return ""
}

func sameEnvelope(t testing.TB, got, want *domain.Envelope) {
	t.Helper()
	if d := difference(reflect.ValueOf(got), reflect.ValueOf(want), ""); d != "" {
		t.Errorf("%s: got and want differ: %s", want.Event.Type(), d)
	}
}
