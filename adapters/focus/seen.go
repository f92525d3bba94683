package focus

import (
	"encoding/binary"
	"math/bits"
)

// rowKey is 16 bytes of the SHA-256 of a row.
type rowKey [16]byte

// rowSeen says of equal rows which was the first and how many there were. The zero value means none.
type rowSeen struct {
	line  int32 // of the first row, from 1
	times int32
}

// rowsSeen holds every row of a file, in about 25 bytes a row. The zero value is empty. It takes half the memory of a
// map: its shards are full to seven eighths before they grow, and by a quarter then, one at a time.
type rowsSeen struct {
	shards [256]seenShard // by the first byte of the key
	times  map[rowKey]int32
}

// seenShard is a hash table with linear probing.
type seenShard struct {
	keys  []rowKey
	lines []int32 // of the first row; 0 for a free place
	used  int
}

// of returns what was seen of a row.
func (s *rowsSeen) of(key rowKey) rowSeen {
	shard := &s.shards[key[0]]
	if len(shard.lines) == 0 {
		return rowSeen{}
	}
	line := shard.lines[shard.place(key)]
	if line == 0 {
		return rowSeen{}
	}
	if times, several := s.times[key]; several {
		return rowSeen{line, times}
	}
	return rowSeen{line, 1}
}

// add notes another row in a line of the file.
func (s *rowsSeen) add(key rowKey, line int32) {
	shard := &s.shards[key[0]]
	if shard.used >= len(shard.lines)/8*7 {
		shard.grow()
	}
	i := shard.place(key)
	if shard.lines[i] == 0 {
		shard.keys[i], shard.lines[i] = key, line
		shard.used++
		return
	}
	if s.times == nil {
		s.times = map[rowKey]int32{}
	}
	s.times[key] = max(s.times[key], 1) + 1
}

// place returns the place of a key, or a free one for it.
func (s *seenShard) place(key rowKey) int {
	at, _ := bits.Mul64(binary.LittleEndian.Uint64(key[8:]), uint64(len(s.lines)))
	i := int(at)
	for s.lines[i] != 0 && s.keys[i] != key {
		if i++; i == len(s.lines) {
			i = 0
		}
	}
	return i
}

func (s *seenShard) grow() {
	size := max(64, (len(s.lines)*5/4+7)/8*8)
	old := *s
	*s = seenShard{keys: make([]rowKey, size), lines: make([]int32, size), used: old.used}
	for i, line := range old.lines {
		if line != 0 {
			at := s.place(old.keys[i])
			s.keys[at], s.lines[at] = old.keys[i], line
		}
	}
}
