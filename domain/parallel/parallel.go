// Package parallel runs functions in several goroutines, so that a defect in one can be recovered from by whoever asked: a
// server goes on.
package parallel

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// Run calls do with every number below n, all at once, and waits for them. If one panics, Run does after the others have
// ended. The value is then a text: what the first panicked with, a line break, and its stack.
func Run(n int, do func(k int)) {
	var all sync.WaitGroup
	var once sync.Once
	var defect string
	for k := range n {
		all.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					once.Do(func() { defect = fmt.Sprintf("%v\n%s", p, debug.Stack()) })
				}
			}()
			do(k)
		})
	}
	all.Wait()
	if defect != "" {
		panic(defect)
	}
}
