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
	return kept{reopened(t, b.Bytes())}
}

func reopened(t interface{ Fatal(...any) }, snapshot []byte) *projections.Memory {
	m := projections.NewMemory(domain.TopicSpecs())
	m.Strict = true
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
