package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"quartermaster/domain/packing"
)

// onlineFlags say how arrivals are replayed.
type onlineFlags struct {
	policy string
}

func (fl *onlineFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&fl.policy, "online", "", "place pods as they arrive, by this policy")
	f.Lookup("online").Hidden = true
}

// packOnline replays arrivals of pods on nodes, both in the order of their files.
func (a *app) packOnline(_ context.Context, _ *onlineFlags, _ []packing.Node, _ []packing.Workload) error {
	return errors.New("plan pack: online placement is not there yet")
}
