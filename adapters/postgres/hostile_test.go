package postgres

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// hostile are names that no event should have, although some will.
var hostile = []string{
	"\x00", "a\x00b", "a\x00c", "\xff", "\xff\xfe", "a\xc3", "a\xc3b", "é\xed\xa0\x80", "\ufffd", "\ufffda", "\ufffd\ufffd", "\U0010ffff",
	strings.Repeat("x", maxKey), strings.Repeat("x", maxKey+1), strings.Repeat("x", maxKey+1) + "y", strings.Repeat("é", 5000), strings.Repeat("\x00", 100_000),
	`\u0000`, `\\u0000`, `a\`, `'; drop table x; --`, `{"a":1}`, "{a,b}", "\\N", "\\.", "a\tb\nc\r", "%s", "$1", " ", "NULL", "\u202e", "\u0085", "a", "b",
}

// hostileLog has every hostile name as a source, as a topic key, and in valid events.
func hostileLog() *storetest.Log {
	l := storetest.NewLog()
	l.Batch = 7
	examples := storetest.Examples()
	l.Append(examples...)
	node := slices.IndexFunc(examples, func(e domain.Envelope) bool { return e.Event.Type() == domain.TypeNodeRegistered })
	sample := slices.IndexFunc(examples, func(e domain.Envelope) bool { return e.Event.Type() == domain.TypeNodeSampled })
	line := slices.IndexFunc(examples, func(e domain.Envelope) bool { return e.Event.Type() == domain.TypeBillingLineRecorded })
	for i, name := range hostile {
		for _, e := range []int{node, sample, line} {
			env := examples[e]
			env.Source = name
			l.Append(env, env) // in each partition, twice
			// Under a wrong key, which the decoder of a real log refuses.
			topic := env.Topic()
			tp := domain.TopicPartition{Topic: topic, Partition: domain.PartitionOf([]byte(name), topic.Partitions())}
			l.AppendRaw(tp, []byte(name), fmt.Append(nil, e), storetest.Start)
			// Numbers that exceed the server's types.
			env.Source, env.Incarnation = "high", 1<<63+uint64(i)
			l.Append(env)
			env.Source, env.Sequence = "late/"+fmt.Sprint(i), 5
			at, offset := l.AppendAt(env, storetest.Start)
			l.AppendRaw(tp, []byte(name), l.Records(at)[offset].Value, storetest.Start)
		}
		// Suppliers' text is stored unchanged.
		bill := examples[line]
		ev := *bill.Event.(*domain.BillingLineRecorded)
		ev.Line.LineID, ev.Line.ChargeDescription, ev.Line.Tags = fmt.Sprintf("line %d", i), name, name
		bill.Event = &ev
		l.Append(bill)
	}
	return l
}

// same compares the content of two stores through every read method.
func same(t *testing.T, got, want projections.Store) {
	t.Helper()
	err := want.View(t.Context(), func(w projections.View) error {
		return got.View(t.Context(), func(g projections.View) error {
			if g.Position().String() != w.Position().String() {
				t.Errorf("is at %s, want %s", g.Position(), w.Position())
			}
			a, err := storetest.Digest(g)
			if err != nil {
				return err
			}
			b, err := storetest.Digest(w)
			if err != nil {
				return err
			}
			if a != b {
				t.Errorf("rows have digest %x, want %x", a, b)
			}
			for _, table := range projections.Tables() {
				x, err := g.Scopes(table)
				if err != nil {
					return err
				}
				y, err := w.Scopes(table)
				if err != nil {
					return err
				}
				if !slices.Equal(x, y) {
					t.Errorf("%s has scopes %.200q, want %.200q", table, x, y)
				}
				queries := []projections.Query{{Table: table}, {Table: table, Last: true}, {Table: table, From: int64(storetest.Start/domain.Hour) + 2},
					{Table: table, From: 1, To: int64(storetest.Start/domain.Hour) + 3, Last: true}}
				for _, scope := range y {
					queries = append(queries, projections.Query{Table: table, Scope: scope}, projections.Query{Table: table, Scope: scope, Last: true})
				}
				for _, q := range queries {
					if err := sameScan(g, w, q); err != nil {
						t.Error(err)
					}
				}
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sameScan compares the rows of a query, and reads the first of them one by one.
func sameScan(got, want projections.View, q projections.Query) error {
	list := func(v projections.View) (out []string, keys []projections.Key, err error) {
		err = v.Scan(q, func(k projections.Key, row projections.Row) error {
			b, err := projections.AppendRow(nil, k, row)
			out, keys = append(out, string(b)), append(keys, k)
			return err
		})
		return out, keys, err
	}
	a, keys, err := list(got)
	if err != nil {
		return fmt.Errorf("%+.200v: %w", q, err)
	}
	b, _, err := list(want)
	if err != nil {
		return err
	}
	if !slices.Equal(a, b) {
		return fmt.Errorf("%.200q: %d rows, want %d, or others", fmt.Sprint(q), len(a), len(b))
	}
	for i, k := range keys[:min(len(keys), 40)] {
		row, err := got.Get(k)
		if err != nil {
			return err
		}
		one, err := projections.AppendRow(nil, k, row)
		if err != nil || !bytes.Equal(one, []byte(a[i])) {
			return fmt.Errorf("%.200s got alone is another row than scanned, error %v", k, err)
		}
	}
	return nil
}

func TestHostileNamesStopNothing(t *testing.T) {
	db := opened(t)
	g := generation(t, db)
	l := hostileLog()
	want, err := l.Fold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, tune := range map[string]func(*tuning){
		"usual":     nil,
		"few bytes": func(h *tuning) { h.bytes = 1000 },
		"no cache":  func(h *tuning) { h.keep, h.page = 0, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			s := claimed(t, db, emptied(t, db, g), tune)
			if err := l.Runner(s).CatchUp(t.Context(), l.End()); err != nil {
				t.Fatal(err)
			}
			same(t, s, want)
		})
	}
}

// TestSameAsMemory folds random logs in random steps, with every tuning, and sometimes drops the
// working set.
func TestSameAsMemory(t *testing.T) {
	db := opened(t)
	g := generation(t, db)
	n := long.Count(5, 200)
	draw, event := rapid.Custom(storetest.Draw), rapid.Custom(storetest.DrawEvent)
	for seed := range n {
		l := draw.Example(seed)
		for i := range 100 {
			l.Append(event.Example(1000*seed + i))
		}
		want, err := l.Fold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		s := claimed(t, db, emptied(t, db, g), func(h *tuning) {
			h.keep = []int{0, 3, 1 << 20}[r.IntN(3)]
			h.array = []int{1, 5, 2000}[r.IntN(3)]
			h.bytes = []int{1, 300, 16 << 20}[r.IntN(3)]
			h.page = []int{1, 3, 256}[r.IntN(3)]
		})
		for _, tp := range domain.AllPartitions() {
			for done := false; !done; {
				if r.IntN(2) == 0 {
					s.parts[tp].forget()
				}
				n, err := storetest.Step(t.Context(), l, s, tp, 1+r.IntN(3))
				if err != nil {
					t.Fatalf("log %d: %v", seed, err)
				}
				done = n == 0
			}
		}
		same(t, s, want)
		heldAddsUp(t, db, s, want)
		if t.Failed() {
			t.Fatalf("log %d, tuning %+v", seed, s.tuning)
		}
	}
}

// heldAddsUp compares usage_held with the usage hours.
func heldAddsUp(t *testing.T, db *DB, s *Store, m *projections.Memory) {
	t.Helper()
	var want []string
	err := m.View(t.Context(), func(v projections.View) error {
		return v.Scan(projections.Query{Table: projections.TableUsage}, func(k projections.Key, row projections.Row) error {
			u := row.(*projections.UsageHour)
			sums := map[string]*[4]uint64{}
			for _, o := range u.Observers {
				for _, d := range o.Devices {
					for _, x := range d.Segments {
						if x.Holder == 0 {
							continue
						}
						h := u.Holders[x.Holder-1]
						name := strings.Join([]string{h.Workspace, k.Scope, h.Deployment, k.ID, hourText(k.Hour), o.Source}, "|")
						if sums[name] == nil {
							sums[name] = &[4]uint64{}
						}
						part := 0
						if d.Cut > 0 || d.Replica > 0 {
							part = 1
						}
						sums[name][part] += uint64(x.To - x.From)
						sums[name][2] += uint64(x.Known)
						sums[name][3] += x.Active
					}
				}
			}
			for name, s := range sums {
				want = append(want, fmt.Sprintf("%s|%s|%s|%s|%d.%06d", name, thousandths(s[0]), thousandths(s[1]), thousandths(s[2]), s[3]/1e6, s[3]%1e6))
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	got := texts(t, db, `select concat_ws('|', workspace, cluster, deployment, node, hour, source, gpu_seconds, slice_seconds, measured_seconds, active_seconds)
		from `+s.schema+`.usage_held where gpu_seconds + slice_seconds > 0`)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("usage_held has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestColumnText(t *testing.T) {
	seen := map[string]string{}
	for _, name := range hostile {
		text, exact := columnText(name, maxKey)
		if exact != (text == name) || len(text) > maxKey || strings.ContainsRune(text, 0) || !strings.HasPrefix(text, replacementPrefix) && !exact {
			t.Errorf("%.40q is kept as %.40q, exact %v", name, text, exact)
		}
		if again, _ := columnText(text, maxKey); !exact && again == text {
			t.Errorf("%.40q is also kept as itself", text)
		}
		if other, ok := seen[text]; ok {
			t.Errorf("%.40q and %.40q are kept alike", name, other)
		}
		seen[text] = name
	}
}

func TestJSONText(t *testing.T) {
	for in, want := range map[string]string{
		`"a"`: `"a"`, `"\u0000"`: `"\ufffd"`, `"\\u0000"`: `"\\u0000"`, `"\\\u0000"`: `"\\\ufffd"`, `"\u0000\u0000x"`: `"\ufffd\ufffdx"`, `"\u000"`: `"\u000"`, `\`: `\`,
	} {
		if got := string(jsonText([]byte(in))); got != want {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
	}
}
