package projections_test

import (
	"bytes"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// kept is a memory store that is kept as a snapshot when its process ends.
type kept struct{ *projections.Memory }

func (k kept) Reopen(t *testing.T) projections.Store {
	var b bytes.Buffer
	if _, _, err := k.WriteSnapshot(&b, "test"); err != nil {
		t.Fatal(err)
	}
	return kept{reopened(t, b.Bytes(), nil)}
}

func reopened(t interface{ Fatal(...any) }, snapshot []byte, parts projections.PartSource) *projections.Memory {
	m := projections.NewMemory(domain.TopicSpecs())
	m.Strict, m.Source = true, parts
	if _, err := m.ReadSnapshot(bytes.NewReader(snapshot), int64(len(snapshot)), "test"); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) projections.Store {
		m := projections.NewMemory(domain.TopicSpecs())
		m.Strict = true
		return kept{m}
	})
}

// keptDetached is a memory store over parts that is kept as a snapshot when its process ends.
type keptDetached struct{ storetest.Detached }

func (k keptDetached) Reopen(t *testing.T) projections.Store {
	var b bytes.Buffer
	if _, _, err := k.WriteSnapshot(&b, "test"); err != nil {
		t.Fatal(err)
	}
	return keptDetached{storetest.Detached{Memory: reopened(t, b.Bytes(), k.Parts), Parts: k.Parts}}
}

// A store that leaves rows to parts at every opportunity is a store like any other.
func TestMemoryOverParts(t *testing.T) {
	storetest.Run(t, func(*testing.T) projections.Store { return keptDetached{storetest.NewDetached()} })
}
