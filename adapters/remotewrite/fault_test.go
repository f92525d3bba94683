package remotewrite_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/remotewrite"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// XIDs and memory failures that dcgm-exporter reports are faults, judged by the table. Each is
// counted once, however often it is reported, by however many servers and to however many
// instances.
func TestFaults(t *testing.T) {
	l := storetest.NewLog()
	var told int
	receive := func(known bool) *receiver {
		return newReceiver(func(c *remotewrite.Config) {
			if known {
				c.Faulted = func(cluster, node string, gpu domain.GPUID, field uint32) (detail string, err error) {
					m, err := l.Fold(t.Context())
					if err != nil {
						return "", err
					}
					err = m.View(t.Context(), func(v projections.View) error {
						detail, err = projections.ScrapedFault(v, cluster, node, gpu, field)
						return err
					})
					return detail, err
				}
			}
		})
	}
	send := func(r *receiver, from string, minute int, name string, values ...float64) {
		t.Helper()
		s := series{text: name + `{` + gpu0 + `,Hostname="n1"}`, values: values}
		for i := range values {
			s.times = append(s.times, time.Duration(minute)*time.Minute+time.Duration(i)*15*time.Second)
		}
		r.events = nil
		if w := r.post(t, typeV2, v2(t, []series{s})); w.Code != 204 {
			t.Fatalf("answer %d: %s", w.Code, w.Body)
		}
		for _, e := range r.events {
			e.Source, e.Incarnation, e.Sequence = "prometheus/"+from, 0, 0
			l.Append(e)
			told++
		}
	}
	a, b := receive(true), receive(true)
	const xid = "DCGM_FI_DEV_XID_ERRORS"
	send(a, "a", -60, xid, 0, 0, 31, 31, 31)
	send(a, "a", -60, xid, 0, 0, 31, 31, 31) // reported again
	send(b, "b", -59, xid, 31, 31)           // by another server to another instance
	send(a, "a", -40, xid, 31, 79, 79)
	send(receive(true), "a", -10, xid, 79)  // after a restart
	send(receive(false), "c", -40, xid, 79) // an instance that cannot ask the log
	send(a, "a", -5, "DCGM_FI_DEV_ROW_REMAP_FAILURE", 0, 1, 1)
	send(a, "a", -5, "DCGM_FI_DEV_ROW_REMAP_PENDING", 1)
	send(a, "a", -5, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 0, 2, 2, 3)
	m, err := l.Fold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := m.View(t.Context(), func(v projections.View) error {
		return v.Scan(projections.Query{Table: projections.TableFaults}, func(_ projections.Key, row projections.Row) error {
			for _, v := range row.(*projections.History).Versions {
				f := v.Event.(*domain.GPUFaultObserved)
				got = append(got, fmt.Sprintf("%s %d %s %t", f.Kind, f.Code, f.Action, f.Fatal))
			}
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{"ecc 0 reset_gpu true", "ecc 0 reset_gpu true", "row_remap 0 replace_gpu true", "row_remap 0 reset_when_idle false",
		"xid 31 restart_workload false", "xid 79 reboot_node true"}
	slices.Sort(got)
	if strings.Join(got, "\n") != strings.Join(want, "\n") || told != len(want)+1 {
		t.Errorf("%d told, rows have\n%s\nwant\n%s", told, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The values of fault gauges are codes, counts and states. A fraction is set aside, not rounded to
// the next code.
func TestFaultsAreWhole(t *testing.T) {
	r := newReceiver(func(*remotewrite.Config) {})
	for _, name := range []string{"DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_ROW_REMAP_FAILURE"} {
		s := series{text: name + `{` + gpu0 + `,Hostname="n1"}`, values: []float64{79.5, 0.5, 79.00000001}, times: []time.Duration{-3 * time.Minute, -2 * time.Minute, -time.Minute}}
		if w := r.post(t, typeV2, v2(t, []series{s})); w.Code != 204 {
			t.Fatalf("answer %d: %s", w.Code, w.Body)
		}
	}
	if len(r.events) != 0 {
		t.Errorf("%d faults, the first %+v", len(r.events), r.events[0].Event)
	}
}

// An increase of a lifetime counter, which survives resets and reboots, is a fault. Its first value
// is not. A pending retirement is a state, and a fault when it is first seen. Names and meanings
// are from DCGM's dcgm_fields.h and dcgm-exporter's etc/default-counters.csv.
func TestLifetimeCounters(t *testing.T) {
	const total, dbe, sbe, pending, remapped = "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "DCGM_FI_DEV_RETIRED_DBE",
		"DCGM_FI_DEV_RETIRED_SBE", "DCGM_FI_DEV_RETIRED_PENDING", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"
	const gpu1 = `UUID="GPU-22222222-2222-2222-2222-222222222222"`
	told := map[string]string{}
	receive := func() *receiver {
		return newReceiver(func(c *remotewrite.Config) {
			c.Faulted = func(_, _ string, gpu domain.GPUID, field uint32) (string, error) {
				return told[fmt.Sprint(gpu, field)], nil
			}
		})
	}
	a, b := receive(), receive()
	later := receive() // after a restart
	for i, c := range []struct {
		r      *receiver
		gpu    string
		name   string
		values []float64
		want   string
	}{
		{a, gpu0, total, []float64{7, 7}, ""},
		{b, gpu0, total, []float64{7}, ""},
		{a, gpu0, total, []float64{7, 9, 9, 10}, "ecc x2 reset_gpu true; ecc x1 reset_gpu true"},
		{b, gpu0, total, []float64{10}, ""}, // the other instance reported it
		{later, gpu0, total, []float64{10, 10}, ""},
		{later, gpu0, total, []float64{0, 1}, "ecc x1 reset_gpu true"}, // it was cleared
		{a, gpu1, total, []float64{3}, ""},                             // another GPU in the slot
		{a, gpu1, total, []float64{4}, "ecc x1 reset_gpu true"},
		{receive(), gpu1, total, []float64{6}, "ecc x2 reset_gpu true"}, // increased between two instances
		{a, gpu0, strings.ToLower(dbe), []float64{12}, ""},
		{a, gpu0, dbe, []float64{13}, "page_retirement x1 reset_when_idle false"},
		{a, gpu0, sbe, []float64{0, 2}, "page_retirement x2 monitor false"},
		{a, gpu0, pending, []float64{1, 1, 0, 1}, "page_retirement x1 reset_when_idle false; page_retirement x1 reset_when_idle false"},
		{a, gpu0, remapped, []float64{5, 6}, "row_remap x1 reset_when_idle false"},
		{a, gpu1, sbe, []float64{math.NaN(), -1, 0x7ffffff0, 0x7ffffffffffffff0, math.Inf(1), math.Inf(-1), 1e300}, ""}, // no value, or DCGM's codes for none
		{a, gpu1, sbe, []float64{3}, ""},
	} {
		s := series{text: c.name + `{` + c.gpu + `,Hostname="n1"}`, values: c.values}
		for j := range c.values {
			s.times = append(s.times, time.Duration(i-60)*time.Minute+time.Duration(j)*10*time.Second)
		}
		c.r.events = nil
		if w := c.r.post(t, typeV2, v2(t, []series{s})); w.Code != 204 {
			t.Fatalf("%d: answer %d: %s", i, w.Code, w.Body)
		}
		var got []string
		for _, e := range c.r.events {
			f := e.Event.(*domain.GPUFaultObserved)
			if err := domain.Validate(&e); err != nil {
				t.Errorf("%d: %v", i, err)
			}
			told[fmt.Sprint(f.GPU, f.Field)] = f.Detail
			got = append(got, fmt.Sprintf("%s x%d %s %t", f.Kind, f.Count, f.Action, f.Fatal))
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%d: %s %v: %q, want %q", i, c.name, c.values, strings.Join(got, "; "), c.want)
		}
	}
}
