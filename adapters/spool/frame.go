package spool

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// Offsets and sizes of a frame's parts; see the package comment.
const (
	frameHead   = 44
	frameRest   = frameHead + markerBytes // and the end
	maxData     = 4 << 20                 // the largest record of the log
	atLength    = 4
	atSum       = 8
	atBody      = 12
	atSequence  = 20
	atFrom      = 28
	atTo        = 36
	markerBytes = 4
)

var (
	frameMarker  = [markerBytes]byte{'Q', 'S', 'P', 'L'}
	headerMarker = [markerBytes]byte{'Q', 'S', 'P', 'H'}
	// frameEnd distinguishes a frame that was written to its end from a torn one, which may be
	// filled up with zeros.
	frameEnd   = [markerBytes]byte{'Q', 'E', 'N', 'D'}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// appendFrame appends a frame for a segment and an offset.
func appendFrame(b []byte, marker [markerBytes]byte, segment uint64, offset int64, e *Entry) []byte {
	start := len(b)
	b = append(b, marker[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(e.Data)))
	b = append(b, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, e.Incarnation)
	b = binary.LittleEndian.AppendUint64(b, e.Sequence)
	b = binary.LittleEndian.AppendUint64(b, uint64(e.Covered.From))
	b = binary.LittleEndian.AppendUint64(b, uint64(e.Covered.To))
	b = append(b, e.Data...)
	b = append(b, frameEnd[:]...)
	binary.LittleEndian.PutUint32(b[start+atSum:], frameSum(b[start:], segment, offset))
	return b
}

func frameSum(frame []byte, segment uint64, offset int64) uint32 {
	var place [16]byte
	binary.LittleEndian.PutUint64(place[:], segment)
	binary.LittleEndian.PutUint64(place[8:], uint64(offset))
	sum := crc32.Update(0, castagnoli, place[:])
	sum = crc32.Update(sum, castagnoli, frame[atLength:atSum])
	return crc32.Update(sum, castagnoli, frame[atBody:])
}

// parseFrame parses the frame at an offset of a segment. The data is not copied.
func parseFrame(segment []byte, marker [markerBytes]byte, number uint64, offset int64) (e Entry, size int64, ok bool) {
	b := segment[offset:]
	if len(b) < frameRest || [markerBytes]byte(b) != marker {
		return e, 0, false
	}
	n := int64(binary.LittleEndian.Uint32(b[atLength:]))
	if n > maxData || frameRest+n > int64(len(b)) {
		return e, 0, false
	}
	size = frameRest + n
	if frameSum(b[:size], number, offset) != binary.LittleEndian.Uint32(b[atSum:]) {
		return e, 0, false
	}
	e.Incarnation = binary.LittleEndian.Uint64(b[atBody:])
	e.Sequence = binary.LittleEndian.Uint64(b[atSequence:])
	e.Covered.From = instant(b[atFrom:])
	e.Covered.To = instant(b[atTo:])
	e.Data = b[frameHead : size-markerBytes : size-markerBytes]
	return e, size, true
}

// damage is a run of bytes that are not a frame.
type damage struct {
	offset, size int64
	// whole is how many complete frames the run seems to contain. They were written to their end,
	// so they are not torn.
	whole uint64
}

// scan yields every valid frame of a segment. offset must be that of a frame. It calls broken for
// every run of other bytes. It skips zeros at the end, which a power failure may leave.
func scan(segment []byte, number uint64, offset int64, yield func(at int64, e Entry, size int64) bool, broken func(damage)) {
	for end := int64(len(segment)); offset < end; {
		if e, size, ok := parseFrame(segment, frameMarker, number, offset); ok {
			if !yield(offset, e, size) {
				return
			}
			offset += size
			continue
		}
		next := nextFrame(segment, number, offset+1)
		run := segment[offset:next]
		if len(bytes.TrimRight(run, "\x00")) > 0 {
			broken(damage{offset, next - offset, wholeFrames(run)})
		}
		offset = next
	}
}

// nextFrame returns the offset of the next valid frame, or the end if there is none.
func nextFrame(segment []byte, number uint64, from int64) int64 {
	for from < int64(len(segment)) {
		i := bytes.Index(segment[from:], frameMarker[:])
		if i < 0 {
			break
		}
		from += int64(i)
		if _, _, ok := parseFrame(segment, frameMarker, number, from); ok {
			return from
		}
		from++
	}
	return int64(len(segment))
}

// wholeFrames counts the complete frames that a damaged run seems to contain: those whose end
// marker is where their length says, or where the next frame begins.
func wholeFrames(run []byte) (n uint64) {
	for len(run) >= frameRest && ([markerBytes]byte(run) == frameMarker || n == 0) {
		size := frameRest + int64(binary.LittleEndian.Uint32(run[atLength:]))
		if size > int64(len(run)) || !bytes.HasSuffix(run[:size], frameEnd[:]) {
			// The length itself may be damaged.
			if bytes.HasSuffix(bytes.TrimRight(run, "\x00"), frameEnd[:]) {
				n++
			}
			break
		}
		n++
		run = run[size:]
	}
	return n
}
