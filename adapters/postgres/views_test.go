package postgres

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections/storetest"
)

// variants returns copies of an event: for each field one with that field empty, and for each
// number one with its maximum.
func variants(e domain.Event) (out []domain.Event) {
	var walk func(t reflect.Type, index []int)
	set := func(index []int, change func(reflect.Value)) {
		c := reflect.New(reflect.TypeOf(e).Elem())
		c.Elem().Set(reflect.ValueOf(e).Elem())
		if f, err := c.Elem().FieldByIndexErr(index); err == nil && f.CanSet() {
			change(f)
			out = append(out, c.Interface().(domain.Event))
		}
	}
	walk = func(t reflect.Type, index []int) {
		for i := range t.NumField() {
			if !t.Field(i).IsExported() {
				continue
			}
			at := append(slices.Clone(index), i)
			set(at, func(f reflect.Value) { f.SetZero() })
			switch t.Field(i).Type.Kind() {
			case reflect.Uint32, reflect.Uint64:
				set(at, func(f reflect.Value) { f.SetUint(1<<f.Type().Bits() - 1) })
			case reflect.Int, reflect.Int32, reflect.Int64:
				set(at, func(f reflect.Value) { f.SetInt(1<<(f.Type().Bits()-1) - 1) })
			case reflect.Struct:
				walk(t.Field(i).Type, at)
			}
		}
	}
	walk(reflect.TypeOf(e).Elem(), nil)
	return out
}

// TestViewsOfAnything reads every column of every view over hostile names and over every event with
// each field empty or at its maximum.
func TestViewsOfAnything(t *testing.T) {
	db := opened(t)
	g := generation(t, db)
	activate(t, db, g)
	l := hostileLog()
	signer := storetest.NewOperator("ann", 1)
	for _, env := range storetest.Examples() {
		for _, e := range variants(env.Event) {
			env.Event = e
			if _, err := env.Key(); err != nil {
				continue
			}
			if s, ok := e.(*domain.NodeSampled); ok && (s.Interval.To < s.Interval.From || s.Interval.To > s.Interval.From+domain.Day) {
				continue // the log reader refuses these
			}
			if env.Signature != nil {
				env = signer.Sign(env)
			}
			l.Append(env)
		}
	}
	l.Append(storetest.Node("c9", "cpu-only", "", 0, storetest.Start))
	l.Batch = 500
	if err := l.Runner(claimed(t, db, g, nil)).CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}
	readAll := func() {
		t.Helper()
		for _, name := range viewNames() {
			if _, err := collectText(db.QueryContext(t.Context(), "select x::text from quartermaster."+name+" x")); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	readAll()
	aside, err := strconv.ParseInt(texts(t, db, `select count(*)::text from quartermaster.quarantine`)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if taken := l.End().Records() - aside; taken < 500 {
		t.Errorf("%d records were taken and %d set aside: the views have too little to show", taken, aside)
	}
	want := func(query, want string) {
		t.Helper()
		if got := strings.Join(texts(t, db, query), "\n"); got != want {
			t.Errorf("%s\n%s\nwant\n%s", query, got, want)
		}
	}
	want(`select gpus || ' ' || coalesce(gpu_model, '-') || ' ' || retired from quartermaster.nodes where cluster = 'c9'`, "0 - false")

	// A row may have null for a list, or no JSON at all.
	sources := texts(t, db, `select count(*)::text from quartermaster.serving`)[0]
	if sources == "0" {
		t.Error("no row of serving to look at")
	}
	for _, facts := range []string{`'{"sources": null}'`, `'{}'`, `null`} {
		if _, err := db.ExecContext(t.Context(), fmt.Sprintf(`update %s.serving_hours set facts = %s`, schemaOf(g), facts)); err != nil {
			t.Fatal(err)
		}
		want(`select count(*)::text from quartermaster.serving`, "0")
	}
	for facts, missing := range map[string]string{`{"mark": 9, "gaps": null, "lost": 3}`: "3", `{"mark": 9}`: "0", `{"mark": 9, "gaps": [{"first": 2, "last": 3}]}`: "2"} {
		if _, err := db.ExecContext(t.Context(), fmt.Sprintf(`update %s.streams set facts = $1`, schemaOf(g)), facts); err != nil {
			t.Fatal(err)
		}
		want(`select distinct missing::text from quartermaster.streams`, missing)
	}
	for _, table := range tables {
		if table.facts == "" {
			continue
		}
		if _, err := db.ExecContext(t.Context(), fmt.Sprintf(`update %s.%s set facts = null`, schemaOf(g), table.name())); err != nil {
			t.Fatal(err)
		}
	}
	readAll()
}
