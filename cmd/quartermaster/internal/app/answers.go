package app

import (
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/singleflight"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/access"
)

// keptBytes bounds the total size of the cached answers, and mostBytes that of one answer. The
// size is the length of the answer's JSON, or what its Bytes method returns.
const (
	keptBytes = 128 << 20
	mostBytes = keptBytes / 2
)

// answers caches the latest answers. An answer is a pure function of the operation, the question,
// what the principal sees, the position and the version of the program, so a cached one never becomes
// stale. Months of usage and divisions are functions of less than a position, and are cached by that.
// Equal questions that arrive at once are computed once. The zero value is ready to use.
type answers struct {
	once singleflight.Group

	mu    sync.Mutex
	bytes int
	list  list.List // of *answer, most recently used in front
	byKey map[string]*list.Element

	reads map[domain.Interval]*projections.Reads // what the last division of a month read

	computed  int // number of answers computed, for tests
	divisions int // number of months divided, for tests
}

type answer struct {
	key   string
	value any
	bytes int
}

// kept returns the cached answer to a question about rows, or calls compute and caches its
// result. Callers MUST NOT modify the answer.
func kept[T any](c *Caller, v projections.View, operation string, question any, compute func() (T, error)) (T, error) {
	asked, err := json.Marshal(question)
	if err != nil {
		return *new(T), fmt.Errorf("%s: %w", operation, err)
	}
	key := fmt.Sprintf("%s\n%s\n%s\n%s\n%s %s", operation, asked, c.app.scope().Key(), v.Position(), projections.Method, attribution.Method)
	return keptAs(c.app.cache(), key, func() string { return key }, func() (T, string, error) {
		value, err := compute()
		return value, key, err
	})
}

// lastRead returns what the last division of a month read, nil if that is not known.
func (a *answers) lastRead(month domain.Interval) *projections.Reads {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reads[month]
}

// divisionKey returns the key of a month's division: what it read, as that is in a view. If what it read
// is not known, it is the position.
func divisionKey(v projections.View, month domain.Interval, reads *projections.Reads) string {
	of := "position " + v.Position().String()
	if reads != nil {
		if inputs, err := reads.Inputs(v); err == nil {
			of = inputs
		}
	}
	seen := access.Whole().Key()
	if lens, is := access.Of(v); is {
		seen = lens.Scope().Key()
	}
	return fmt.Sprintf("division\n%v\n%s %s\n%s\n%s", month, projections.Method, attribution.Method, seen, of)
}

// divided remembers what a division of a month read.
func (a *answers) divided(month domain.Interval, reads *projections.Reads) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reads == nil {
		a.reads = map[domain.Interval]*projections.Reads{}
	}
	a.reads[month] = reads
}

// dividedOnce counts a division.
func (a *answers) dividedOnce() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.divisions++
}

// keptAs returns the cached answer under a key, or calls compute and caches its result under the key
// that compute returns: it may depend on what was read. Answers that are computed at once for the same
// question, which names rows too, are computed once.
func keptAs[T any](
	a *answers, question string, key func() string, compute func() (value T, key string, err error),
) (T, error) {
	if value, ok := a.get(key()); ok {
		return value.(T), nil
	}
	for {
		mine := false
		value, err, _ := a.once.Do(question, func() (any, error) {
			mine = true
			if value, ok := a.get(key()); ok {
				return value, nil
			}
			value, computed, err := compute()
			if err == nil {
				a.put(computed, value)
				a.mu.Lock()
				a.computed++
				a.mu.Unlock()
			}
			return value, err
		})
		switch {
		case err == nil:
			return value.(T), nil
		case mine || !errors.Is(err, context.Canceled):
			return *new(T), err
		} // else who computed it gave up, and this one computes it
	}
}

func (a *answers) get(key string) (any, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.byKey[key]
	if !ok {
		return nil, false
	}
	a.list.MoveToFront(e)
	return e.Value.(*answer).value, true
}

// put caches an answer, unless it is too large, and evicts the least recently used ones.
func (a *answers) put(key string, value any) {
	size := keptBytes + 1
	var n counter
	if sized, ok := value.(interface{ Bytes() int }); ok {
		size = sized.Bytes()
	} else if err := json.NewEncoder(&n).Encode(value); err == nil {
		size = int(n)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if size > mostBytes {
		return
	}
	if a.byKey == nil {
		a.byKey = map[string]*list.Element{}
	}
	if _, twice := a.byKey[key]; twice {
		return
	}
	a.byKey[key] = a.list.PushFront(&answer{key, value, size})
	for a.bytes += size; a.bytes > keptBytes; {
		e := a.list.Back()
		old := a.list.Remove(e).(*answer)
		delete(a.byKey, old.key)
		a.bytes -= old.bytes
	}
}

type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
