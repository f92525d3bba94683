package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/keyfile"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
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
	if code, out := s.command("generation", "rebuild", "b", "--no-switch", "--quiet"); code != 0 {
		t.Fatal(out)
	}
	c, err := config.Load(s.config, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	a := commandLine(&app.App{Dir: s.data, Config: c, ConfigPath: s.config}, io.Discard, io.Discard)
	h, err := a.OpenProduction(t.Context(), app.Reading)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Shut()
	h.Generation = "b"
	key, err := keyfile.Load(a.KeyPath())
	if err != nil {
		t.Fatal(err)
	}
	sum, at, err := h.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	env := domain.Envelope{Time: app.Now(), Subject: "b", Event: &domain.GenerationSwitched{
		Entity: app.Platform, From: "a", To: "b", Method: projections.Method, Position: at.String(), Digest: sum[:], Reason: "cut short",
	}}
	if err := wire.Sign(&env, app.Me(), key); err != nil {
		t.Fatal(err)
	}
	body, err := app.SwitchRecord(&env)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.DB.SwitchBy(t.Context(), "a", "b", body); err != nil {
		t.Fatal(err)
	}
	if code, out := s.command("generation", "status"); code != 0 || !strings.Contains(out, "the switch to b is not in the log yet") {
		t.Errorf("exit %d\n%s", code, out)
	}
	// It was appended, and the next run does not know of it.
	if told, err := h.TellSwitch(t.Context()); err != nil || !told {
		t.Fatalf("told %t, %v", told, err)
	}
	if _, err := h.DB.Exec("update quartermaster.active set untold = $1", body); err != nil {
		t.Fatal(err)
	}
	if code, out := s.command("generation", "switch", "b", "--reason", "again"); code != 0 || !strings.Contains(out, "is now appended\ngeneration b is already active") {
		t.Errorf("exit %d\n%s", code, out)
	}
	s.verified()
	code, out := s.command("generation", "status")
	if code != 0 || strings.Count(out, "cut short") != 1 || strings.Contains(out, "again") || strings.Contains(out, "not in the log") {
		t.Errorf("exit %d\n%s", code, out)
	}
	r.ends()
}
