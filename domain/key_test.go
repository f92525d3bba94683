package domain

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func clusterKey(t testing.TB, seed byte) ClusterKey {
	t.Helper()
	k, err := NewClusterKey(bytes.NewReader(bytes.Repeat([]byte{seed}, 64)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestClusterKey(t *testing.T) {
	k := clusterKey(t, 7)
	text := k.String()
	if again, err := ParseClusterKey(text); err != nil || again != k {
		t.Fatalf("%s reads as %v: %v", text, again, err)
	}
	mac := k.MAC("lab")
	switch {
	case len(mac) != 32, bytes.Contains(mac, k.secret[:8]):
		t.Errorf("mac %x", mac)
	case !k.Is("lab", mac), k.Is("prod", mac), clusterKey(t, 8).Is("lab", mac):
		t.Error("the mac must fit this key and this cluster alone")
	}
	other := k
	other.ID = clusterKey(t, 8).ID
	if other.Is("lab", mac) {
		t.Error("the mac fits under another id")
	}
	if _, err := NewClusterKey(iotest.ErrReader(errors.New("no entropy"))); err == nil {
		t.Error("made a key without random bits")
	}
}

// Every replaced, omitted or doubled character is detected.
func TestClusterKeyTypos(t *testing.T) {
	text := clusterKey(t, 200).String()
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
		with := rapid.StringN(0, 2, 4).Draw(t, "with")
		typo := text[:at] + with + text[at+1:]
		if typo == text {
			return
		}
		_, err := ParseClusterKey(typo)
		if !errors.Is(err, ErrClusterKey) {
			t.Fatalf("%q was taken for a key: %v", typo, err)
		}
		if len(with) > 1 && strings.Contains(err.Error(), typo[10:30]) {
			t.Fatalf("the error quotes the key: %v", err)
		}
	})
}

func FuzzParseClusterKey(f *testing.F) {
	f.Add(clusterKey(f, 1).String())
	f.Add("qmk__")
	f.Fuzz(func(t *testing.T, text string) {
		k, err := ParseClusterKey(text)
		if err == nil && k.String() != text {
			t.Fatalf("%q reads as a key that writes %q", text, k.String())
		}
	})
}
