package wire

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"quartermaster/domain"
)

// appendSample appends the payload of a sample, or returns why it is invalid.
func appendSample(b []byte, env *domain.Envelope, s *domain.NodeSampled) ([]byte, error) {
	if env.Time != s.Interval.To {
		return nil, fmt.Errorf("time %s is not the end of its interval, %s", env.Time, s.Interval.To)
	}
	if err := domain.Validate(env); err != nil {
		return nil, err
	}
	arrays := sampleArrays(s)
	tails, parts, err := frontCode(s.Strings)
	if err != nil {
		return nil, err
	}
	subject := env.Subject
	if subject == s.Node {
		subject = ""
	}
	texts := [...]struct {
		field protowire.Number
		s     string
	}{
		{fieldSource, env.Source}, {fieldNode, s.Node}, {fieldSubject, subject},
		{fieldWorkspace, env.Workspace}, {fieldCites, env.Cites},
	}
	for _, t := range texts {
		if err := checkText(t.s, maxAttribute); err != nil {
			return nil, fmt.Errorf("field %s: %w", sampleFields[t.field], err)
		}
	}
	arrays[fieldNameParts] = &parts
	for f := protowire.Number(1); f < fieldCount; f++ {
		switch f {
		case fieldSource, fieldNode, fieldSubject, fieldWorkspace, fieldCites:
			for _, t := range texts {
				if t.field == f {
					b = appendBytes(b, f, t.s)
				}
			}
		case fieldNameTails:
			b = appendBytes(b, f, tails)
		case fieldIDs:
			b = appendBytes(b, f, s.IDs)
		case fieldParents:
			b = appendBytes(b, f, s.Parents)
		case fieldIncarnation:
			b = appendNumber(b, f, env.Incarnation)
		case fieldSequence:
			b = appendNumber(b, f, env.Sequence)
		case fieldActivityField:
			b = appendNumber(b, f, uint64(s.ActivityField))
		case fieldHoldersUnknown:
			if s.HoldersUnknown {
				b = appendNumber(b, f, 1)
			}
		case fieldSkew:
			b = appendNumber(b, f, s.SkewNanos)
		case fieldPreviousIncarnation:
			b = appendNumber(b, f, env.PreviousIncarnation)
		case fieldPreviousSequence:
			b = appendNumber(b, f, env.PreviousSequence)
		case fieldFrom:
			b = appendInstant(b, f, s.Interval.From)
		case fieldTo:
			b = appendInstant(b, f, s.Interval.To)
		case fieldRecorded:
			b = appendInstant(b, f, env.Recorded)
		case fieldOtherValue:
			b = appendPacked(b, f, s.OtherValue)
		default:
			b = appendPacked(b, f, *arrays[f])
		}
	}
	if len(b) > maxSample {
		return nil, fmt.Errorf("payload of %d bytes, more than %d", len(b), maxSample)
	}
	return b, nil
}

func appendBytes[T string | []byte](b []byte, f protowire.Number, v T) []byte {
	if len(v) == 0 {
		return b
	}
	b = protowire.AppendTag(b, f, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(v)))
	return append(b, v...)
}

func appendNumber(b []byte, f protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, f, protowire.VarintType), v)
}

func appendInstant(b []byte, f protowire.Number, t domain.Instant) []byte {
	if t == 0 {
		return b
	}
	return protowire.AppendFixed64(protowire.AppendTag(b, f, protowire.Fixed64Type), uint64(t))
}

func appendPacked[T uint32 | uint64](b []byte, f protowire.Number, vs []T) []byte {
	if len(vs) == 0 {
		return b
	}
	size := 0
	for _, v := range vs {
		size += protowire.SizeVarint(uint64(v))
	}
	b = protowire.AppendTag(b, f, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	for _, v := range vs {
		b = protowire.AppendVarint(b, uint64(v))
	}
	return b
}

// frontCode encodes each name as the length of the prefix shared with the one before, and the rest.
func frontCode(names []string) (tails string, parts []uint32, err error) {
	var b []byte
	last, total := "", 0
	for i, name := range names {
		if err := checkText(name, maxName); err != nil {
			return "", nil, fmt.Errorf("field names[%d]: %w", i, err)
		}
		if total += len(name); total > maxNameBytes {
			return "", nil, fmt.Errorf("field names: more than %d bytes", maxNameBytes)
		}
		n := 0
		for n < len(name) && n < len(last) && name[n] == last[n] {
			n++
		}
		for n > 0 && n < len(name) && !utf8.RuneStart(name[n]) { // each tail must be valid text itself
			n--
		}
		parts = append(parts, uint32(n), uint32(len(name)-n))
		b = append(b, name[n:]...)
		last = name
	}
	return string(b), parts, nil
}
