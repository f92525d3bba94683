package usage_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

// shardNodes are in different shards of 4 and of 8.
var shardNodes = []string{"node-1", "node-2", "gpu-0007"}

// drawShift draws what happened to the nodes of cluster c in four hours: reports of an agent and of
// a monitoring system, faults and maintenance. Envelopes are in the order of their times.
func drawShift(t *rapid.T) (envs []domain.Envelope) {
	add := func(node, source string, minute int, ev domain.Event) {
		env := storetest.Hardware(minute, ev)
		env.Source = source + node
		envs = append(envs, env)
	}
	for _, node := range shardNodes {
		for minute := 0; minute < 240; {
			// A gap of up to five minutes is bridged, but not across a change of shards.
			to := minute + rapid.IntRange(6, 45).Draw(t, "minutes")
			devices := make([]storetest.Seen, 2)
			for i := range devices {
				devices[i] = storetest.Seen{
					ID:        storetest.GPU("c", node, i),
					Workspace: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "holder"),
					Activity:  rapid.IntRange(-1, 1000).Draw(t, "activity"),
				}
			}
			seen := storetest.Sample(node, storetest.Span(minute, to), devices...)
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0: // silence
			case 1:
				add(node, "prometheus/", to, seen)
			case 2:
				code := rapid.SampledFrom([]uint32{31, 79}).Draw(t, "xid")
				add(node, "node-reporter/", to, seen)
				add(node, "node-reporter/", to, &domain.GPUFaultObserved{
					Node: node, GPU: devices[0].ID, Kind: domain.FaultXID, Code: code, Fatal: code == 79,
				})
			case 3:
				add(node, "node-reporter/", to, &domain.NodeCordoned{Node: node, Reason: "test"})
			case 4:
				add(node, "node-reporter/", to, &domain.NodeReturned{Node: node})
			default:
				add(node, "node-reporter/", to, seen)
			}
			minute = to
		}
	}
	slices.SortStableFunc(envs, func(a, b domain.Envelope) int { return int(a.Time - b.Time) })
	// One node goes to cluster d, within an hour as a rule.
	moved := domain.Instant(rapid.IntRange(0, 300).Draw(t, "moved"))*storetest.Minute + storetest.Start
	for i := range envs {
		if node, _ := domain.NodeOf(envs[i].Event); node == shardNodes[0] && envs[i].Time > moved {
			envs[i].Cluster = "d"
		}
	}
	return envs
}

// shards folds the same events with a number of shards that depends on the time, and returns what
// the views say, and how many keys the rows of nodes have.
func shards(t *rapid.T, envs []domain.Envelope, of func(domain.Instant) int) (said string, scopes int) {
	l := storetest.NewLog()
	for _, cluster := range []string{"c", "d"} {
		l.Append(storetest.Cluster(cluster, "home", "p", "eu", storetest.Start))
	}
	for _, node := range shardNodes {
		l.Append(storetest.Node("c", node, "H100 80GB", 2, storetest.Start))
	}
	for i := range envs {
		if envs[i].Cluster == "d" {
			to := storetest.Node("c", shardNodes[0], "H100 80GB", 2, envs[i].Time)
			to.Cluster = "d"
			l.Append(to)
			break
		}
	}
	for _, env := range envs {
		env.Shards = of(env.Time)
		env.Incarnation = uint64(1 + env.Shards)
		l.Append(env)
	}
	m := storetest.Fold(t, l)
	storetest.Look(t, m, func(v projections.View) error {
		end := storetest.Start + 5*domain.Hour
		answers := map[string]any{}
		var hours []usage.DeviceHour
		err := usage.EachDeviceHour(v, storetest.Start, end, func(d *usage.DeviceHour) error {
			h := *d
			h.Segments = slices.Clone(d.Segments)
			hours = append(hours, h)
			return nil
		})
		if err != nil {
			return err
		}
		answers["hours"] = hours
		for _, t := range []projections.Table{projections.TableNodeGPUs, projections.TableFaults, projections.TableHealth} {
			err := v.Scan(projections.Query{Table: t}, func(k projections.Key, row projections.Row) error {
				if h, ok := row.(*projections.History); ok {
					// Streams number their events anew after a change of shards.
					out := *h
					out.Versions = slices.Clone(h.Versions)
					for i := range out.Versions {
						o := &out.Versions[i]
						o.Order.Incarnation, o.Order.Sequence = 0, 0
						if o.Again != nil {
							again := *o.Again
							again.Incarnation, again.Sequence = 0, 0
							o.Again = &again
						}
					}
					row = &out
				}
				answers[k.String()] = row
				one, err := v.Get(k)
				if err == nil && one == nil {
					err = fmt.Errorf("%s is in a scan and cannot be got", k)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		last := 0
		query := projections.Query{Table: projections.TableUsage, Scope: "c", Last: true}
		if err := v.Scan(query, func(projections.Key, projections.Row) error { last++; return nil }); err != nil {
			return err
		}
		answers["last"] = last
		clusters, err := v.Scopes(projections.TableUsage)
		if err != nil {
			return err
		}
		answers["clusters"] = clusters
		fleet, err := inventory.ReadFleet(v)
		if err != nil {
			return err
		}
		answers["fleet"] = fmt.Sprint(len(fleet.Index))
		for _, t := range []projections.Table{projections.TableUsage, projections.TableHealth} {
			stored, err := projections.Stored(v).Scopes(t)
			if err != nil {
				return err
			}
			scopes = max(scopes, len(stored))
		}
		b, err := json.MarshalIndent(answers, "", " ")
		said = string(b)
		return err
	})
	return said, scopes
}

// Answers do not depend on the number of shards, nor on when it changed: within an hour, once or
// twice.
func TestShardsDoNotChangeAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		envs := drawShift(t)
		want, _ := shards(t, envs, func(domain.Instant) int { return 0 })
		first := storetest.Start + domain.Instant(rapid.IntRange(0, 240).Draw(t, "change"))*storetest.Minute
		second := first + domain.Instant(rapid.IntRange(0, 90).Draw(t, "until the next"))*storetest.Minute
		for name, of := range map[string]func(domain.Instant) int{
			"eight": func(domain.Instant) int { return 8 },
			"grown": func(at domain.Instant) int {
				switch {
				case at <= first:
					return 1
				case at <= second:
					return 4
				}
				return 8
			},
			"shrunk": func(at domain.Instant) int {
				if at <= first {
					return 8
				}
				return 0
			},
		} {
			got, _ := shards(t, envs, of)
			if a, b := strings.Split(got, "\n"), strings.Split(want, "\n"); got != want {
				i := 0
				for i < min(len(a), len(b)) && a[i] == b[i] {
					i++
				}
				t.Fatalf("%s, from line %d on:\n%s\nwithout shards:\n%s", name, i,
					strings.Join(a[max(0, i-12):min(len(a), i+34)], "\n"), strings.Join(b[max(0, i-12):min(len(b), i+34)], "\n"))
			}
		}
	})
}

// The rows of a sharded cluster are in several partitions.
func TestShardsSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var envs []domain.Envelope
		for _, node := range shardNodes {
			env := storetest.Hardware(10, storetest.Sample(node, storetest.Span(0, 10), storetest.Seen{ID: storetest.GPU("c", node, 0)}))
			env.Source = "node-reporter/" + node
			envs = append(envs, env)
		}
		if _, scopes := shards(t, envs, func(domain.Instant) int { return 8 }); scopes != 3 {
			t.Fatalf("three nodes have rows under %d keys", scopes)
		}
	})
}
