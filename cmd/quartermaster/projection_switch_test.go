package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/kafka"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
	"quartermaster/projections"
)

// A switch that ended between the pointer and the log is finished by the next run, and
// counts once however often its event was appended.
func TestSwitchFinished(t *testing.T) {
	s := newSite(t)
	s.patience = time.Second
	s.start()
	s.fill(20)
	r := s.serve("a")
	r.says(1, "caught up")
	s.verified()
	if code, out := s.command("projection", "rebuild", "b", "--no-switch", "--quiet"); code != 0 {
		t.Fatal(out)
	}
	c, err := config.Load(s.config, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	a := &app{out: io.Discard, err: io.Discard, dir: s.data, config: c, configPath: s.config}
	h, err := a.openProduction(t.Context(), reading)
	if err != nil {
		t.Fatal(err)
	}
	defer h.shut()
	h.generation = "b"
	who, err := h.signer(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	sum, at, err := h.digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	body, err := h.switchRecord(t.Context(), who, domain.Envelope{Time: now(), Subject: "b", Event: &domain.GenerationSwitched{
		Entity: platform, From: "a", To: "b", Method: projections.Method, Position: at.String(), Digest: sum[:], Reason: "cut short",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.db.SwitchBy(t.Context(), "a", "b", body); err != nil {
		t.Fatal(err)
	}
	if code, out := s.command("projection", "status"); code != 0 || !strings.Contains(out, "the switch to b is not in the log yet") {
		t.Errorf("exit %d\n%s", code, out)
	}
	// It was appended, and the next run does not know of it.
	if told, err := h.tellSwitch(t.Context()); err != nil || !told {
		t.Fatalf("told %t, %v", told, err)
	}
	if _, err := h.db.Exec("update quartermaster.active set untold = $1", body); err != nil {
		t.Fatal(err)
	}
	if code, out := s.command("projection", "switch", "b", "--reason", "again"); code != 0 || !strings.Contains(out, "now it is\ngeneration b is read already") {
		t.Errorf("exit %d\n%s", code, out)
	}
	s.verified()
	code, out := s.command("projection", "status")
	if code != 0 || strings.Count(out, "cut short") != 1 || strings.Contains(out, "again") || strings.Contains(out, "not in the log") {
		t.Errorf("exit %d\n%s", code, out)
	}
	r.ends()
}

// What is lost begins where that is known from.
func TestLostRecords(t *testing.T) {
	tp := domain.TopicPartition{Topic: domain.TopicFleet, Partition: 1}
	for _, c := range []struct{ position, end, since, want int64 }{
		{10, 7, -1, 7},  // the log is shorter
		{10, -1, -1, 9}, // its last record is another
		{10, -1, 4, 4},  // the broker says from where on
		{10, 7, 4, 4},
	} {
		d := &kafka.DivergedError{Partition: tp, Position: c.position, End: c.end, Since: c.since}
		if got := lostRecords(d, 12); got != (domain.LostRecords{Topic: tp.Topic, Partition: 1, Since: c.want, Position: c.position, End: 12}) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}
