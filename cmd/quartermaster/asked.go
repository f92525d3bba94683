package main

import (
	"fmt"
	"slices"
	"strings"

	application "quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// asked is what the flags of a report narrow it to.
type asked struct{ workspace, cluster, region string }

// known refuses a cluster or region that there is not. An answer that is empty
// because of a slip of the pen looks like one about something that is idle.
func (q asked) known(v projections.View) error {
	if q.cluster == "" && q.region == "" {
		return nil
	}
	names, err := registry.NewNames(v)
	if err != nil {
		return err
	}
	if err := among("cluster", q.cluster, names.Clusters); err != nil {
		return err
	}
	return among("region", q.region, names.Regions)
}

// empty refuses a workspace that there is not. It is for answers that are
// empty, because who holds GPUs may be in no registry.
func (q asked) empty(v projections.View) error {
	if q.workspace == "" {
		return nil
	}
	names, err := registry.NewNames(v)
	if err != nil {
		return err
	}
	return among("workspace", q.workspace, names.Workspaces)
}

// String returns the flags, for example " with --cluster lab".
func (q asked) String() string {
	s := ""
	for _, f := range []struct{ flag, value string }{{"--workspace", q.workspace}, {"--cluster", q.cluster}, {"--region", q.region}} {
		if f.value != "" {
			s += " " + f.flag + " " + f.value
		}
	}
	if s != "" {
		s = " with" + s
	}
	return s
}

// offered is how many names an error lists.
const offered = 20

func among(what, value string, names []string) error {
	if value == "" || slices.Contains(names, value) {
		return nil
	}
	if len(names) == 0 {
		return &application.NotFoundError{What: what, Name: value, Err: fmt.Errorf("no %s matches --%s %s; there are none yet", what, what, value)}
	}
	list := make([]string, 0, offered)
	for _, name := range names[:min(offered, len(names))] {
		list = append(list, clipped(name))
	}
	more := ""
	if n := len(names) - offered; n > 0 {
		more = fmt.Sprintf(" and %s more", comma(n))
	}
	return &application.NotFoundError{What: what, Name: value, Known: names, Err: fmt.Errorf("no %s matches --%s %s; there are: %s%s", what, what, value, strings.Join(list, ", "), more)}
}

// widest is how many characters of a name a table shows; JSON has all.
const widest = 40

func clipped(name string) string { return domain.Clip(name, widest) }

// reportEnds says under a table what it may lack, and what made it.
func (a *app) reportEnds(c registry.Completeness) {
	a.showProgram()
	if note := c.Note(); note != "" {
		a.lacking = true
		fmt.Fprintf(a.out, "%s: see \"quartermaster quarantine list\" and \"quartermaster log stats\"\n", note)
	}
}
