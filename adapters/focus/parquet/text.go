package parquet

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"quartermaster/adapters/tabular"
)

// leaf prepares to read a column of values.
func (t *Table) leaf(c *parquet.Column) (*leaf, error) {
	l := &leaf{
		shared:     &t.shared,
		name:       strings.Join(c.Path(), "."),
		index:      c.Index(),
		definition: c.MaxDefinitionLevel(),
		repeated:   c.MaxRepetitionLevel() > 0,
	}
	unread := fmt.Errorf("column %s has the Parquet type %s, which is not read", l.name, c.Type())
	kind := c.Type().Kind()
	var logical format.LogicalTypeValue
	if lt := c.Type().LogicalType(); lt != nil {
		logical = lt.Value
	}
	switch lt := logical.(type) {
	case nil:
		l.bare = kind != parquet.Int96 && kind != parquet.ByteArray
		switch kind {
		case parquet.Boolean:
			l.format = boolean
		case parquet.Int32, parquet.Int64:
			l.format = integer
		case parquet.Int96:
			l.format = int96
		case parquet.Float, parquet.Double:
			l.format = float
			t.notes = append(t.notes, tabular.Note{Column: l.name, Text: "the column holds floating point, not decimals: " +
				"each value is read by the shortest decimal text that gives the same float"})
		case parquet.ByteArray:
			l.format = text
		default:
			return nil, unread
		}
	case *format.StringType, *format.EnumType, *format.JsonType:
		l.format = text
	case *format.UUIDType:
		l.format = uuid
	case *format.IntType:
		l.bare = true
		if l.format = integer; !lt.IsSigned {
			l.format = unsigned
		}
	case *format.DecimalType:
		l.bare = true
		if l.scale = int(lt.Scale); l.scale < 0 || l.scale > maxScale {
			return nil, fmt.Errorf("column %s has decimals of scale %d, at most %d are read", l.name, l.scale, maxScale)
		}
		if l.format = decimalBytes; kind == parquet.Int32 || kind == parquet.Int64 {
			l.format = decimalInt
		}
	case *format.DateType:
		l.format = date
	case *format.TimestampType:
		unit := time.Nanosecond
		if lt.Unit.Value != nil {
			unit = lt.Unit.Value.Duration()
		}
		l.format = timestamp(unit, lt.IsAdjustedToUTC)
	case *format.NullType:
		l.format = text // of no value
	default:
		return nil, unread
	}
	t.leaves = append(t.leaves, l)
	return l, nil
}

// maxScale is the greatest scale of a decimal: what 256 bits may have, and more.
const maxScale = 100

// cache keeps texts, because most columns of a bill have few different values. It is a table of
// fixed size: a value replaces another one with the same hash.
type cache struct {
	numbers []cachedNumber
	texts   map[string]string
}

type cachedNumber struct {
	bits uint64
	text string
}

const (
	cachedNumbers = 1 << 10 // a power of two
	cachedTexts   = 1 << 12
	cachedLength  = 512 // longer texts are not kept
)

// number returns the text of a number, which format computes.
func (c *cache) number(bits uint64, format func() string) string {
	if c.numbers == nil {
		c.numbers = make([]cachedNumber, cachedNumbers)
	}
	e := &c.numbers[(bits*0x9e3779b97f4a7c15)>>54]
	if e.bits != bits || e.text == "" {
		*e = cachedNumber{bits, format()}
	}
	return e.text
}

// string returns bytes as a string.
func (c *cache) string(b []byte) string {
	if s, ok := c.texts[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(b) <= cachedLength && len(c.texts) < cachedTexts {
		if c.texts == nil {
			c.texts = map[string]string{}
		}
		c.texts[s] = s
	}
	return s
}

func boolean(_ *leaf, v *parquet.Value) string { return strconv.FormatBool(v.Boolean()) }

// whole is the value of a column of INT32 or INT64.
func whole(v *parquet.Value) int64 {
	if v.Kind() == parquet.Int32 {
		return int64(v.Int32())
	}
	return v.Int64()
}

func integer(_ *leaf, v *parquet.Value) string { return strconv.FormatInt(whole(v), 10) }

func unsigned(_ *leaf, v *parquet.Value) string {
	if v.Kind() == parquet.Int32 {
		return strconv.FormatUint(uint64(uint32(v.Int32())), 10)
	}
	return strconv.FormatUint(uint64(v.Int64()), 10)
}

// float returns the shortest decimal text that parses to the same float.
func float(l *leaf, v *parquet.Value) string {
	if v.Kind() == parquet.Float {
		f := v.Float()
		return l.cache.number(uint64(math.Float32bits(f)), func() string { return plain(float64(f), 32) })
	}
	f := v.Double()
	return l.cache.number(math.Float64bits(f), func() string { return plain(f, 64) })
}

func plain(f float64, bits int) string {
	if f == 0 { // -0 too
		return "0"
	}
	return strconv.FormatFloat(f, 'f', -1, bits)
}

func text(l *leaf, v *parquet.Value) string { return l.cache.string(v.ByteArray()) }

func uuid(_ *leaf, v *parquet.Value) string {
	h := hex.EncodeToString(v.ByteArray())
	if len(h) != 32 {
		return h
	}
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func decimalInt(l *leaf, v *parquet.Value) string {
	n := whole(v)
	return l.cache.number(uint64(n), func() string { return point(strconv.AppendInt(nil, n, 10), l.scale) })
}

// decimalBytes formats a decimal in bytes: two's complement, big-endian.
func decimalBytes(l *leaf, v *parquet.Value) string {
	b := v.ByteArray()
	if len(b) == 0 {
		return "0"
	}
	if len(b) == 16 {
		high, low, last := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), l.shared
		if n := int64(low); int64(high) == n>>63 {
			return l.cache.number(low, func() string { return point(strconv.AppendInt(nil, n, 10), l.scale) })
		}
		if last.text != "" && last.scale == l.scale && last.high == high && last.low == low {
			return last.text
		}
		if s, ok := decimal128(high, low, l.scale); ok {
			last.high, last.low, last.scale, last.text = high, low, l.scale, s
			return s
		}
	}
	// Most amounts fit in 64 bits, however many bytes the column has.
	n, fits := int64(int8(b[0])), true
	for i, x := range b {
		if i == 0 {
			continue
		}
		if n > math.MaxInt64>>8 || n < math.MinInt64>>8 {
			fits = false
			break
		}
		n = n<<8 | int64(x)
	}
	if fits {
		return l.cache.number(uint64(n), func() string { return point(strconv.AppendInt(nil, n, 10), l.scale) })
	}
	z := new(big.Int).SetBytes(b)
	if b[0]&0x80 != 0 {
		z.Sub(z, new(big.Int).Lsh(big.NewInt(1), uint(len(b))*8))
	}
	return point(z.Append(nil, 10), l.scale)
}

// decimal128 formats a decimal of 128 bits, in two's complement. It reports false if the decimal has
// more than 37 digits or so.
func decimal128(high, low uint64, scale int) (string, bool) {
	const most = 1_000_000_000_000_000_000 // 10¹⁸
	var room [48]byte
	b := room[:0]
	if int64(high) < 0 {
		b = append(b, '-')
		var carry uint64
		low, carry = bits.Add64(^low, 1, 0)
		high = ^high + carry
	}
	if high >= most { // the quotient would not fit in 64 bits
		return "", false
	}
	front, back := bits.Div64(high, low, most)
	if front > 0 {
		b = strconv.AppendUint(b, front, 10)
		for power := uint64(most / 10); power > 1 && back < power; power /= 10 {
			b = append(b, '0')
		}
	}
	return point(strconv.AppendUint(b, back, 10), scale), true
}

// point writes digits × 10^-scale, without zeros at the end. The zeros say nothing of a value whose
// column has one scale for all, and a file of another scale must give the same text.
func point(digits []byte, scale int) string {
	var room [64]byte
	b := room[:0]
	if digits[0] == '-' {
		b, digits = append(b, '-'), digits[1:]
	}
	whole := len(digits) - scale
	if whole > 0 {
		b, digits = append(b, digits[:whole]...), digits[whole:]
	} else {
		b = append(b, '0')
	}
	if digits = bytes.TrimRight(digits, "0"); len(digits) == 0 {
		return string(b)
	}
	b = append(b, '.')
	for range -whole {
		b = append(b, '0')
	}
	return string(append(b, digits...))
}

func date(l *leaf, v *parquet.Value) string {
	days := int64(v.Int32())
	return l.cache.number(uint64(days), func() string { return time.Unix(days*86400, 0).UTC().Format("2006-01-02") })
}

func timestamp(unit time.Duration, instant bool) func(*leaf, *parquet.Value) string {
	layout := "2006-01-02T15:04:05.999999999"
	if instant {
		layout += "Z07:00"
	}
	perSecond := int64(time.Second / unit)
	return func(l *leaf, v *parquet.Value) string {
		n := v.Int64()
		return l.cache.number(uint64(n), func() string {
			seconds := n / perSecond
			rest := n % perSecond // time.Unix takes a negative one
			return time.Unix(seconds, rest*int64(unit)).UTC().Format(layout)
		})
	}
}

// julianUnix is the Julian day number of 1970-01-01.
const julianUnix = 2440588

// int96 formats nanoseconds of a Julian day.
// Source: Apache Parquet, LogicalTypes.md, "INT96 timestamps".
func int96(_ *leaf, v *parquet.Value) string {
	i := v.Int96()
	nanos := int64(binary.LittleEndian.Uint64(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, i[0]), i[1])))
	return time.Unix((int64(i[2])-julianUnix)*86400, nanos).UTC().Format(time.RFC3339Nano)
}
