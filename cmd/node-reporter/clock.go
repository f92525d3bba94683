package main

import (
	"sync"
	"time"
)

// clock bounds the error of this node's clock. It uses the kernel's synchronization state, and the
// Date header of the gateway's answers, which has whole seconds.
type clock struct {
	mu          sync.Mutex
	low, high   time.Duration // this node's clock minus the gateway's
	heard       bool
	kernelKnows func() (time.Duration, bool)
}

func newClock() *clock { return &clock{kernelKnows: kernelError} }

// observe records the date of an answer, with the times of sending and receiving.
func (c *clock) observe(sent, received, date time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The gateway's clock was between date and date + 1s, at a time between sent and received.
	c.low, c.high, c.heard = sent.Sub(date.Add(time.Second)), received.Sub(date), true
}

// bound returns the greatest known error of the clock; 0 means unknown.
func (c *clock) bound() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	kernel, synced := c.kernelKnows()
	least, most := time.Duration(0), max(-c.low, c.high)
	if c.low > 0 {
		least = c.low
	} else if c.high < 0 {
		least = -c.high
	}
	switch {
	case synced && (!c.heard || kernel >= least):
		return max(kernel, 1)
	case c.heard:
		return most // the gateway contradicts the kernel, or is all there is
	}
	return 0
}
