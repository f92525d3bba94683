package postgres

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
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

// Views show the cluster of rows that are stored by shard.
func TestViewsOfShards(t *testing.T) {
	db := opened(t)
	g := generation(t, db)
	activate(t, db, g)
	l := storetest.NewLog()
	l.Append(storetest.Cluster("c1", "acme", "p", "eu", storetest.Start))
	for i, of := range []int{1, 8, 4} {
		for _, node := range []string{"n1", "n2"} {
			held := storetest.Seen{ID: storetest.GPU("c1", node, 0), Workspace: "acme", Activity: 500}
			for _, ev := range []domain.Event{
				storetest.Sample(node, storetest.Span(10*i, 10*i+10), held),
				&domain.GPUFaultObserved{Node: node, Kind: domain.FaultXID, Code: uint32(31 + i)},
			} {
				env := storetest.Hardware(10*i+10, ev)
				env.Cluster, env.Source, env.Incarnation, env.Shards = "c1", "node-reporter/c1/"+node, uint64(1+i), of
				l.Append(env)
			}
		}
	}
	if err := l.Runner(claimed(t, db, g, nil)).CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		`select cluster || ' ' || node || ' ' || sum(gpu_seconds)::bigint || ' ' || count(*)
			from quartermaster.usage_by_observer group by cluster, node order by 1`: "c1 n1 1800 3\nc1 n2 1800 3",
		`select cluster || ' ' || node || ' ' || string_agg(code::text, ' ' order by code)
			from quartermaster.faults group by cluster, node order by 1`: "c1 n1 31 32 33\nc1 n2 31 32 33",
		`select count(distinct cluster)::text from ` + schemaOf(g) + `.usage_held`: "5",
	} {
		if got := strings.Join(texts(t, db, query), "\n"); got != want {
			t.Errorf("%s\n%s\nwant\n%s", query, got, want)
		}
	}
	// Many scans at once read small pages.
	if err := db.ViewOf(t.Context(), g, func(v projections.View) error {
		stored := projections.Stored(v).(*view)
		for n, want := range map[int]int{1: stored.size, 4: stored.size / 4, 1024: minPage} {
			if got := stored.ForScans(n).(*shared).size; got != want {
				t.Errorf("%d scans read pages of %d rows, want %d", n, got, want)
			}
		}
		rows := 0
		if err := v.Scan(projections.Query{Table: projections.TableUsage, Scope: "c1"}, func(projections.Key, projections.Row) error { rows++; return nil }); err != nil {
			return err
		}
		if rows != 2 {
			t.Errorf("two nodes have %d rows", rows)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
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
