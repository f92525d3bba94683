package freeport

import (
	"net"
	"strconv"
	"testing"
)

func TestRowAvoidsPortsInUse(t *testing.T) {
	const n = 3
	first := Row(t, n)
	if !free(first, n) || first < lowest || first+n > highest {
		t.Fatalf("port %d", first)
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+n-1)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if free(first, n) {
		t.Errorf("the last of %d ports from %d is in use and was not seen", n, first)
	}
	if again := Row(t, n); again < first+n {
		t.Errorf("found port %d, but %d is in use", again, first+n-1)
	}
}
