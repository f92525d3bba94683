package remotewrite_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"quartermaster/adapters/remotewrite"
	"quartermaster/domain"
)

// A node that was repaired but is still unschedulable is no longer cordoned for repair, even if
// another instance stated that. The end of the repair is stated once, when readiness is known.
func TestRepairEndsAfterRestart(t *testing.T) {
	at := now
	r := newReceiver(func(c *remotewrite.Config) { c.Now = func() time.Time { return at } })
	state := func(text string, v float64) series {
		return series{text, []float64{v}, []time.Duration{at.Sub(now)}}
	}
	ready := func(v float64) series {
		return state(`kube_node_status_condition{node="n",condition="Ready",status="true"}`, v)
	}
	unschedulable := func() series { return state(`kube_node_spec_unschedulable{node="n"}`, 1) }
	for _, c := range []struct {
		name string
		send []series
		want []string
	}{
		{"first, readiness unknown", []series{unschedulable()}, []string{"cordoned"}},
		{"ready", []series{ready(1)}, []string{"returned kubernetes: ready", "cordoned"}},
		{"again", []series{ready(1), unschedulable()}, nil},
		{"not ready", []series{ready(0)}, []string{"returned kubernetes: no longer unschedulable", "cordoned for repair"}},
		{"ready again", []series{ready(1)}, []string{"returned kubernetes: no longer not ready", "cordoned"}},
	} {
		at = at.Add(30 * time.Second)
		for i := range c.send {
			c.send[i].times = []time.Duration{at.Sub(now)}
		}
		r.events = nil
		if w := r.post(t, typeV2, v2(t, c.send)); w.Code != http.StatusNoContent {
			t.Fatalf("answer %d: %s", w.Code, w.Body)
		}
		var got []string
		for i := range r.events {
			switch e := r.events[i].Event.(type) {
			case *domain.NodeCordoned:
				text := "cordoned"
				if e.Repair {
					text += " for repair"
				}
				got = append(got, text)
			case *domain.NodeReturned:
				got = append(got, "returned "+e.Reason)
			default:
				got = append(got, fmt.Sprintf("%T", e))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
