package focus

import (
	"testing"

	"pgregory.net/rapid"
)

// What was seen of rows is what a map would say, also of keys that collide.
func TestRowsSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s rowsSeen
		want := map[rowKey]rowSeen{}
		for line := int32(1); line <= int32(rapid.IntRange(1, 300).Draw(t, "rows")); line++ {
			key := rowKey{0: rapid.ByteRange(0, 1).Draw(t, "shard"), 7: rapid.ByteRange(0, 60).Draw(t, "key"), 15: rapid.SampledFrom([]byte{0, 255}).Draw(t, "place")}
			if got := s.of(key); got != want[key] {
				t.Fatalf("line %d: %v is %+v, want %+v", line, key, got, want[key])
			}
			s.add(key, line)
			if before := want[key]; before.times > 0 {
				want[key] = rowSeen{before.line, before.times + 1}
			} else {
				want[key] = rowSeen{line, 1}
			}
		}
		for key, w := range want {
			if got := s.of(key); got != w {
				t.Fatalf("%v is %+v, want %+v", key, got, w)
			}
		}
	})
}
