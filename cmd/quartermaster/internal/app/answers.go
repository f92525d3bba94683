package app

import (
	"container/list"
	"encoding/json"
	"fmt"
	"sync"

	"golang.org/x/sync/singleflight"

	"quartermaster/domain/attribution"
	"quartermaster/projections"
)

// keptBytes bounds what answers are kept, by the length of their JSON or by what they say
// of their size, and mostBytes one of them.
const (
	keptBytes = 128 << 20
	mostBytes = keptBytes / 2
)

// answers keeps what was answered last. An answer is a pure function of the operation,
// what is asked, on whose behalf, the position and the version of the program, so that it
// is right for as long as it is kept. Equal questions at once are answered once. The zero
// value is ready.
type answers struct {
	once singleflight.Group

	mu    sync.Mutex
	bytes int
	list  list.List // of *answer, the one that was asked for last in front
	byKey map[string]*list.Element

	computed int // how many answers were computed, for tests
}

type answer struct {
	key   string
	value any
	bytes int
}

// kept returns the answer to a question about rows: the kept one, or what compute returns.
// Nobody may change it.
func kept[T any](c *Caller, v projections.View, operation string, question any, compute func() (T, error)) (T, error) {
	asked, err := json.Marshal(question)
	if err != nil {
		return *new(T), fmt.Errorf("%s: %w", operation, err)
	}
	key := fmt.Sprintf("%s\n%s\n%s\n%s\n%s %s", operation, asked, c.who.name, v.Position(), projections.Method, attribution.Method)
	a := &c.app.answers
	if value, ok := a.get(key); ok {
		return value.(T), nil
	}
	value, err, _ := a.once.Do(key, func() (any, error) {
		if value, ok := a.get(key); ok {
			return value, nil
		}
		value, err := compute()
		if err == nil {
			a.put(key, value)
		}
		return value, err
	})
	if err != nil {
		return *new(T), err
	}
	return value.(T), nil
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

// put keeps an answer, unless it is too large, and drops those that were not asked for
// the longest.
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
	a.computed++
	if size > mostBytes {
		return
	}
	if a.byKey == nil {
		a.byKey = map[string]*list.Element{}
	}
	a.byKey[key] = a.list.PushFront(&answer{key, value, size})
	for a.bytes += size; a.bytes > keptBytes; {
		e := a.list.Back()
		old := a.list.Remove(e).(*answer)
		delete(a.byKey, old.key)
		a.bytes -= old.bytes
	}
}

// counter counts the bytes that are written to it.
type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
