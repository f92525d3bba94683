// Package freeport finds free ports for programs that tests start. Only tests import it.
package freeport

import (
	"net"
	"os"
	"strconv"
	"testing"
)

const (
	lowest  = 20000
	highest = 32000 // the range of ephemeral ports begins above
)

// Row returns the first of n consecutive ports without a listener. Processes begin their search at
// different ports, so that concurrent tests rarely collide.
func Row(t testing.TB, n int) int {
	t.Helper()
	for first := lowest + os.Getpid()%1000*n; first+n <= highest; first += n {
		if free(first, n) {
			return first
		}
	}
	t.Fatalf("no %d ports in a row are free", n)
	return 0
}

func free(first, n int) bool {
	for port := first; port < first+n; port++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}
