package main

import (
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"

	"quartermaster/adapters/keyfile"
	"quartermaster/domain/merkle"
)

// A report holds as it was signed, and in no other form.
func TestCheckReport(t *testing.T) {
	dir := t.TempDir()
	named := func(name string) (ed25519.PrivateKey, string) {
		public, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := keyfile.PublicPEM(public)
		if err != nil {
			t.Fatal(err)
		}
		return key, write(t, dir, name, []byte(text))
	}
	key, pem := named("provider.pub")
	_, other := named("other.pub")
	body := strings.Repeat("<p>42.00 USD for lab \u2014 quartermaster.log/other/report</p>\n\n", 200) + "<footer>Log log-1</footer>\n"
	signed, err := merkle.SignText(merkle.ReportOrigin("log-1"), body, key)
	if err != nil {
		t.Fatal(err)
	}
	checkpoint, err := (&merkle.Checkpoint{Origin: merkle.Origin("log-1"), Size: 1}).Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := merkle.SignText(merkle.ReportOrigin("log-2"), body, key)
	if err != nil {
		t.Fatal(err)
	}
	file := func(content []byte) string { return write(t, dir, "report.html", content) }
	check := func(want int, says string, content []byte, by ...string) {
		t.Helper()
		args := []string{"check-report", file(content)}
		for _, k := range by {
			args = append(args, "--signed-by", k)
		}
		if code, out, errs := does(args...); code != want || !strings.Contains(out+errs, says) {
			t.Errorf("exit code %d, want %d with %q: %s%s", code, want, says, out, errs)
		}
	}
	check(0, "holds: 1", signed, pem)
	check(0, "about log log-1", signed, other, pem)
	check(5, "signed by a key that was not given", signed, other)
	check(2, "signed-by", signed)
	check(5, "was cut", signed[:len(signed)-200], pem)
	check(5, "was cut", nil, pem)
	check(5, "was cut", checkpoint, pem)
	check(1, "was changed", append([]byte(strings.Replace(string(signed), "42", "43", 1)), nil...), pem)
	check(1, "was changed", append([]byte("x"), signed...), pem)
	check(1, "was changed", append(signed[:len(signed):len(signed)], "more\n"...), pem)
	check(1, "was changed", signed[:len(signed)-10], pem)
	mixed := body + string(foreign[len(body):])
	check(0, "about log log-2", []byte(mixed), pem) // the log is named by the signature
	long, err := merkle.SignText(merkle.ReportOrigin("log-1"), strings.Repeat(body, 200), key)
	if err != nil {
		t.Fatal(err)
	}
	check(0, "holds", long, pem)
	if code, out, _ := does("check-report", file(signed), "--signed-by", pem, "-o", "json"); code != 0 || !json.Valid([]byte(out)) || !strings.Contains(out, `"length": `) {
		t.Errorf("%d %s", code, out)
	}
	for i := 0; i < len(signed); i += len(signed)/200 + 1 {
		changed := append([]byte{}, signed...)
		changed[i] ^= 1
		if code, out, _ := does("check-report", file(changed), "--signed-by", pem); code != 1 && code != 5 {
			t.Fatalf("a flipped bit in byte %d of %d exits %d: %s", i, len(signed), code, out)
		}
	}
}
