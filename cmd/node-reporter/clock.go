package main

import (
	"sync"
	"time"
)

// clock bounds how far this node's clock may be off: by what the kernel knows of its
// synchronisation, and by the Date of the gateway's answers, which have whole seconds.
type clock struct {
	mu          sync.Mutex
	low, high   time.Duration // the node's clock less the gateway's
	heard       bool
	kernelKnows func() (time.Duration, bool)
}

func newClock() *clock { return &clock{kernelKnows: kernelError} }

// hear takes note of an answer with a date, between sending and receiving it.
func (c *clock) hear(sent, received, date time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The gateway's clock stood between date and a second later, at some time between.
	c.low, c.high, c.heard = sent.Sub(date.Add(time.Second)), received.Sub(date), true
}

// bound returns the most that the clock is off as far as is known, 0 for unknown.
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
