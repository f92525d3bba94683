package api

import (
	"container/list"
	"sync"

	"quartermaster/cmd/quartermaster/internal/cli"
)

// mostKept bounds the total size of the answers that are kept, in bytes.
const mostKept = 64 << 20

// kept keeps the latest answers by their entity tags. A tag is a digest of everything that the answer depends on, so a
// kept answer never becomes stale. The zero value is ready to use.
type kept struct {
	mu    sync.Mutex
	bytes int
	list  list.List // of *keptAnswer, most recently used in front
	byTag map[string]*list.Element
}

// keptAnswer MUST NOT be changed.
type keptAnswer struct {
	tag  string
	text []byte
	did  cli.Outcome
}

func (k *kept) get(tag string) *keptAnswer {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.byTag[tag]
	if e == nil {
		return nil
	}
	k.list.MoveToFront(e)
	return e.Value.(*keptAnswer)
}

// put keeps an answer, and drops those that were not asked for the longest.
func (k *kept) put(a *keptAnswer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byTag == nil {
		k.byTag = map[string]*list.Element{}
	}
	if k.byTag[a.tag] != nil {
		return
	}
	k.byTag[a.tag] = k.list.PushFront(a)
	k.bytes += len(a.text)
	for k.bytes > mostKept {
		last := k.list.Remove(k.list.Back()).(*keptAnswer)
		delete(k.byTag, last.tag)
		k.bytes -= len(last.text)
	}
}
