package remotewrite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"net/http"
	"sync"
	"unicode/utf8"

	"github.com/klauspost/compress/snappy"
	"google.golang.org/protobuf/encoding/protowire"

	"quartermaster/adapters/admission"
)

// body is the memory of a request. It is reused.
type body struct {
	compressed, raw []byte
	symbols         []label
	keys            []labelKey // of symbols; 0: not looked up yet
	metrics         []int32    // of symbols, as metric names; 0: not looked up yet
}

var buffers sync.Pool // of *body

// done gives the memory back to the pool, unless it is large: the memory of a few large requests
// must not be held for ever.
func (b *body) done() {
	if cap(b.compressed) > 4<<20 || cap(b.raw) > 4<<20 || cap(b.symbols) > 1<<16 {
		return
	}
	clear(b.symbols) // symbols refer to raw, which the next request overwrites
	buffers.Put(b)
}

// maxExpansion is more than snappy can reach: a copy of 64 bytes takes three bytes.
const maxExpansion = 24

// read returns the decompressed body, and counts its memory against the request.
func (b *body) read(w http.ResponseWriter, req *http.Request, q *admission.Request) (raw []byte, err error) {
	buf, err := q.Read(w, req, b.compressed, maxBody)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, refuse(http.StatusRequestEntityTooLarge, "the body has more than %d bytes: lower max_samples_per_send", maxBody)
	case err != nil:
		return nil, fmt.Errorf("read body: %w", err)
	}
	b.compressed = buf
	size, err := snappy.DecodedLen(buf)
	switch {
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "the body is not snappy: %w", err)
	case size > maxBody:
		return nil, refuse(http.StatusRequestEntityTooLarge,
			"the body has %d bytes when decompressed, more than %d: lower max_samples_per_send", size, maxBody)
	case size > maxExpansion*len(buf):
		return nil, refuse(http.StatusBadRequest, "the body claims %d bytes in %d, more than snappy can do", size, len(buf))
	}
	if err := q.Take(int64(size + size/4)); err != nil {
		return nil, err
	}
	if cap(b.raw) < size {
		b.raw = make([]byte, size+size/4)
	}
	raw, err = snappy.Decode(b.raw[:cap(b.raw)], buf)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "the body is not snappy: %w", err)
	}
	return raw, nil
}

var errMessage = errors.New("the message is cut off or damaged")

// labelSeed is secret, so that nobody can choose labels with equal hashes.
var labelSeed = maphash.MakeSeed()

// fields calls yield for each field of a message. v is the value of a varint or a fixed-size
// number, b the value of a bytes field.
func fields(msg []byte, yield func(num protowire.Number, kind protowire.Type, v uint64, b []byte) error) error {
	for len(msg) > 0 {
		num, kind, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return errMessage
		}
		msg = msg[n:]
		var v uint64
		var b []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(msg)
		case protowire.Fixed64Type:
			v, n = protowire.ConsumeFixed64(msg)
		case protowire.BytesType:
			b, n = protowire.ConsumeBytes(msg)
		default:
			n = protowire.ConsumeFieldValue(num, kind, msg)
		}
		if n < 0 {
			return errMessage
		}
		msg = msg[n:]
		if err := yield(num, kind, v, b); err != nil {
			return err
		}
	}
	return nil
}

// sample is one value of a series.
type sample struct {
	value float64
	time  int64 // milliseconds since 1970
}

func readSample(msg []byte) (s sample, err error) {
	// Fast path for the usual encoding: a value and then a time.
	if len(msg) > 10 && msg[0] == 1<<3|byte(protowire.Fixed64Type) && msg[9] == 2<<3|byte(protowire.VarintType) {
		s.value = math.Float64frombits(binary.LittleEndian.Uint64(msg[1:]))
		v, n := protowire.ConsumeVarint(msg[10:])
		if n == len(msg)-10 {
			s.time = int64(v)
			return s, nil
		}
	}
	err = fields(msg, func(num protowire.Number, kind protowire.Type, v uint64, _ []byte) error {
		switch {
		case num == 1 && kind == protowire.Fixed64Type:
			s.value = math.Float64frombits(v)
		case num == 2 && kind == protowire.VarintType:
			s.time = int64(v)
		}
		return nil
	})
	return s, err
}

// readV2 reads io.prometheus.write.v2.Request, in which labels refer to symbols.
func (s *scan) readV2(msg []byte, b *body) error {
	b.symbols = b.symbols[:0]
	err := fields(msg, func(num protowire.Number, kind protowire.Type, _ uint64, v []byte) error {
		if num == 4 && kind == protowire.BytesType {
			s.spend(perSymbol)
			b.symbols = append(b.symbols, label{v, maphash.Bytes(labelSeed, v), utf8.Valid(v)})
		}
		return s.full
	})
	if err != nil {
		return err
	}
	if len(b.symbols) > 0 && len(b.symbols[0].name) > 0 {
		return errors.New("the first symbol is not empty")
	}
	b.keys, b.metrics = zeroed(b.keys, len(b.symbols)), zeroed(b.metrics, len(b.symbols))
	return fields(msg, func(num protowire.Number, kind protowire.Type, _ uint64, v []byte) error {
		if num != 5 || kind != protowire.BytesType {
			return nil
		}
		s.begin()
		err := fields(v, func(num protowire.Number, kind protowire.Type, n uint64, v []byte) error {
			switch {
			case num == 1 && kind == protowire.BytesType:
				s.refs(v, b)
			case num == 1 && kind == protowire.VarintType:
				s.broken("label references are not packed")
			case num == 2 && kind == protowire.BytesType:
				return s.sample(v)
			case num == 3 && kind == protowire.BytesType:
				return s.histogram(v)
			case num == 4 && kind == protowire.BytesType:
				return s.exemplar(v, len(b.symbols))
			}
			return nil
		})
		if err != nil {
			return err
		}
		s.end()
		return s.full
	})
}

func zeroed[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// refs reads labels as pairs of symbol references.
func (s *scan) refs(packed []byte, b *body) {
	for len(packed) > 0 {
		name, n := protowire.ConsumeVarint(packed)
		if n < 0 {
			s.broken("label references are damaged")
			return
		}
		value, m := protowire.ConsumeVarint(packed[n:])
		if m < 0 {
			s.broken("a label has a name and no value")
			return
		}
		packed = packed[n+m:]
		if name >= uint64(len(b.symbols)) || value >= uint64(len(b.symbols)) {
			s.broken("a label refers to symbol %d of %d", max(name, value), len(b.symbols))
			return
		}
		key := b.keys[name]
		if key == 0 {
			key = keyOf(b.symbols[name].name)
			b.keys[name] = key
		}
		s.label(key, b.symbols[name], b.symbols[value].name, b.symbols[value].valid)
		if key == keyName {
			if b.metrics[value] == 0 {
				b.metrics[value] = metricOf(b.symbols[value].name)
			}
			s.metric = b.metrics[value]
		}
	}
}

// readV1 reads prometheus.WriteRequest, in which labels are text.
func (s *scan) readV1(msg []byte) error {
	return fields(msg, func(num protowire.Number, kind protowire.Type, _ uint64, v []byte) error {
		if num != 1 || kind != protowire.BytesType {
			return nil
		}
		s.begin()
		err := fields(v, func(num protowire.Number, kind protowire.Type, _ uint64, v []byte) error {
			if kind != protowire.BytesType {
				return nil
			}
			switch num {
			case 1:
				var name, value []byte
				err := fields(v, func(num protowire.Number, kind protowire.Type, _ uint64, v []byte) error {
					switch {
					case num == 1 && kind == protowire.BytesType:
						name = v
					case num == 2 && kind == protowire.BytesType:
						value = v
					}
					return nil
				})
				key := keyOf(name)
				s.label(key, label{name, maphash.Bytes(labelSeed, name), utf8.Valid(name)}, value, utf8.Valid(value))
				if key == keyName {
					s.metric = metricOf(value)
				}
				return err
			case 2:
				return s.sample(v)
			case 3:
				return s.exemplar(v, math.MaxInt)
			case 4:
				return s.histogram(v)
			}
			return nil
		})
		if err != nil {
			return err
		}
		s.end()
		return s.full
	})
}

// exemplar counts an exemplar, and checks its symbol references.
func (s *scan) exemplar(msg []byte, symbols int) error {
	s.exemplars++
	return fields(msg, func(num protowire.Number, kind protowire.Type, _ uint64, packed []byte) error {
		if num != 1 || kind != protowire.BytesType || symbols == math.MaxInt {
			return nil
		}
		for len(packed) > 0 {
			ref, n := protowire.ConsumeVarint(packed)
			if n < 0 || ref >= uint64(symbols) {
				s.broken("an exemplar refers to a missing symbol")
				return nil
			}
			packed = packed[n:]
		}
		return nil
	})
}

// histogram checks a native histogram: the number of buckets must match the spans, and the buckets
// must add up to the count. Its values are not kept.
func (s *scan) histogram(msg []byte) error {
	var count, zero, sum float64
	var buckets, spans [2]float64 // by sign: observations in the buckets; number of buckets
	var have [2]float64
	whole := true
	err := fields(msg, func(num protowire.Number, kind protowire.Type, v uint64, b []byte) error {
		side := 0
		switch num {
		case 8, 9, 10:
			side = 1
		}
		switch num {
		case 1:
			count = float64(v)
		case 2:
			count, whole = math.Float64frombits(v), false
		case 3:
			sum = math.Float64frombits(v)
		case 6:
			zero = float64(v)
		case 7:
			zero = math.Float64frombits(v)
		case 8, 11:
			return fields(b, func(num protowire.Number, kind protowire.Type, v uint64, _ []byte) error {
				if num == 2 && kind == protowire.VarintType {
					spans[side] += float64(v)
				}
				return nil
			})
		case 9, 12: // deltas
			if kind == protowire.VarintType {
				return errors.New("the buckets of a histogram are not packed")
			}
			var n int64
			for len(b) > 0 {
				d, size := protowire.ConsumeVarint(b)
				if size < 0 {
					return errMessage
				}
				b = b[size:]
				n += protowire.DecodeZigZag(d)
				if n < 0 {
					buckets[side] = math.NaN()
				}
				buckets[side] += float64(n)
				have[side]++
			}
		case 10, 13:
			if len(b)%8 != 0 || kind != protowire.BytesType {
				return errMessage
			}
			for ; len(b) > 0; b = b[8:] {
				buckets[side] += math.Float64frombits(binary.LittleEndian.Uint64(b))
				have[side]++
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.histograms++
	total := zero + buckets[0] + buckets[1]
	// NaN observations are in no bucket.
	short := math.IsNaN(sum) && total <= count
	switch {
	case have != spans:
		s.broken("a histogram has %v and %v buckets, and spans for %v and %v", have[0], have[1], spans[0], spans[1])
	case math.IsNaN(total) || whole && total != count && !short || math.Abs(total-count) > 1e-6*math.Abs(count) && !short:
		s.broken("a histogram counts %v, and its buckets %v", count, total)
	}
	return nil
}

func (s *scan) broken(format string, args ...any) {
	if s.problem == nil {
		s.problem = fmt.Errorf(format, args...)
	}
}
