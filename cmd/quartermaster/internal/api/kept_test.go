package api

import (
	"fmt"
	"testing"
)

// TestKept keeps more answers than there is room for. Those that were asked for lately stay.
func TestKept(t *testing.T) {
	k := &kept{}
	const size = mostKept / 8
	for i := range 20 {
		k.put(&keptAnswer{tag: fmt.Sprint(i), text: make([]byte, size)})
		if a := k.get("0"); a == nil || a.tag != "0" {
			t.Fatalf("after %d others the one that is asked for again is gone", i)
		}
	}
	n := 0
	for i := range 20 {
		if k.get(fmt.Sprint(i)) != nil {
			n++
		}
	}
	if n != 8 || k.bytes != mostKept || k.list.Len() != 8 {
		t.Errorf("%d are kept, of %d bytes, %d in the list", n, k.bytes, k.list.Len())
	}
	k.put(&keptAnswer{tag: "0", text: make([]byte, size)})
	if k.bytes != mostKept {
		t.Errorf("the same answer twice: %d bytes", k.bytes)
	}
}
