package attribution_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

func TestRef(t *testing.T) {
	r := attribution.Ref{Issuer: "AWS", Account: "123", Line: "l 1", Hour: start, Workspace: "research", Cluster: "c1", Component: attribution.Allocated}
	const want = "issuer=AWS;account=123;line=l%201;hour=2026-05-01T00:00:00Z;workspace=research;cluster=c1;deployment=;component=allocated"
	if r.String() != want {
		t.Errorf("%s, want %s", r, want)
	}
	for _, s := range []string{
		"", want + ";", strings.Replace(want, "l%201", "l 1", 1), strings.Replace(want, "l%201", "l%20%31", 1), strings.Replace(want, "%20", "%2", 1) + "%",
		strings.Replace(want, "00Z", "00+00:00", 1), strings.Replace(want, "allocated", "stolen", 1), strings.Replace(want, "issuer", "Issuer", 1),
	} {
		if r, err := attribution.ParseRef(s); err == nil {
			t.Errorf("%q is read as %+v", s, r)
		}
	}
}

func TestRefRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z;=%/ ]*`), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		r := attribution.Ref{
			Issuer: text.Draw(t, "issuer"), Account: text.Draw(t, "account"), Line: text.Draw(t, "line"),
			Hour:      domain.Instant(rapid.Int64Range(0, 1e6).Draw(t, "hour")) * domain.Hour,
			Workspace: text.Draw(t, "workspace"), Cluster: text.Draw(t, "cluster"), Deployment: text.Draw(t, "deployment"),
			Component: attribution.Component(rapid.IntRange(1, int(attribution.RoundingAdjustment)).Draw(t, "component")),
		}
		back, err := attribution.ParseRef(r.String())
		if err != nil || back != r {
			t.Fatalf("%+v comes back as %+v: %v", r, back, err)
		}
	})
}

func FuzzParseRef(f *testing.F) {
	f.Add("issuer=AWS;account=123;line=l%201;hour=2026-05-01T00:00:00Z;workspace=research;cluster=c1;deployment=;component=allocated")
	f.Add("issuer=;account=;line=%;hour=;workspace=;cluster=;deployment=;component=rounding_adjustment")
	f.Fuzz(func(t *testing.T, s string) {
		if r, err := attribution.ParseRef(s); err == nil && r.String() != s {
			t.Fatalf("%q is read as %q", s, r)
		}
	})
}

func TestNames(t *testing.T) {
	for c := attribution.Committed; c <= attribution.Rounding; c++ {
		if back, err := attribution.ParseClass(c.String()); err != nil || back != c {
			t.Errorf("%s: %v", c, err)
		}
	}
	for r := attribution.ByResource; r <= attribution.ByNothing; r++ {
		if back, err := attribution.ParseMatchMethod(r.String()); err != nil || back != r {
			t.Errorf("%s: %v", r, err)
		}
	}
	for c := attribution.Allocated; c <= attribution.RoundingAdjustment; c++ {
		if back, err := attribution.ParseComponent(c.String()); err != nil || back != c {
			t.Errorf("%s: %v", c, err)
		}
	}
	for _, s := range []string{"", "unknown(0)", "Allocated"} {
		if c, err := attribution.ParseComponent(s); err == nil {
			t.Errorf("%q is %s", s, c)
		}
	}
}
