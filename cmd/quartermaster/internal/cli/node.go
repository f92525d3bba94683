package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

func (a *Program) nodeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Register, drain, return and retire nodes and GPUs"}
	cmd.AddCommand(a.nodeRegisterCommand(), a.nodeReturnCommand(), a.nodeDrainCommand(), a.nodeRetireCommand())
	return cmd
}

func (a *Program) nodeReturnCommand() *cobra.Command {
	var gpu, reason, key string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "return CLUSTER/NODE --reason TEXT",
		Short: "Return a node or a GPU to service",
		Long: `Return ends every fatal fault, cordon and drain of a node from now on. What "quartermaster fleet"
shows as failed is in service again, and its time no longer counts as failed. With --gpu it ends
only the faults of that GPU. Later faults count again.

node-reporter reports by itself that a GPU works again when it can detect that: a lost GPU is
reachable again, the driver no longer asks for an action, or the node was rebooted after a fault
that asked for a reset. Use this command in other cases: a replaced GPU, or a driver that does not
report.

An admin or operator must sign, of the workspace that owns the cluster or of the workspace whose
operators decide everywhere.`,
		Example: "  quartermaster node return lab/gpu-node-1 --reason \"board replaced, burn-in passed\"\n" +
			"  quartermaster node return lab/gpu-node-1 --gpu GPU-6f3f1c2a-0d9b-4c55-8a51-1f0f0a1c9a11 --reason \"reset by hand\" -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			if err := checkReason(reason); err != nil {
				return err
			}
			cluster, node, err := nodeArgument(args[0])
			if err != nil {
				return err
			}
			ev := &domain.NodeReturned{Node: node, Reason: reason}
			if gpu != "" {
				if ev.GPU, err = domain.ParseGPUID(gpu); err != nil {
					return commandline.Usagef("--gpu: %w", err)
				}
				ev.Faults = true
			}
			return a.decideNode(cmd.Context(), key, "returned", dryRun, func() (*app.NodeDecision, app.Draft, error) { return a.caller().ReturnNode(cmd.Context(), cluster, ev) })
		},
	}
	cmd.Flags().StringVar(&gpu, "gpu", "", "UUID of the repaired GPU (default the node with all its faults)")
	nodeFlags(cmd, &reason, &key, &dryRun)
	return cmd
}

// nodeArgument reads CLUSTER/NODE.
func nodeArgument(text string) (cluster, node string, err error) {
	cluster, node, ok := strings.Cut(text, "/")
	if !ok || cluster == "" || node == "" {
		return "", "", commandline.Usagef("%.200q does not name a node; want CLUSTER/NODE, for example lab/gpu-node-1", text)
	}
	return cluster, node, nil
}

func (a *Program) nodeDrainCommand() *cobra.Command {
	var reason, key string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "drain CLUSTER/NODE --reason TEXT",
		Short: "Take a drained node out of service",
		Long: `Drain takes a node out of service from now on. Its idle time counts as maintenance until
"quartermaster node return". Drain moves no workload: drain the node in the scheduler first.

An admin or operator must sign, of the workspace that owns the cluster or of the workspace whose
operators decide everywhere.`,
		Example: "  quartermaster node drain lab/gpu-node-1 --reason \"new firmware\"",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			if err := checkReason(reason); err != nil {
				return err
			}
			cluster, node, err := nodeArgument(args[0])
			if err != nil {
				return err
			}
			ev := &domain.NodeDrained{Node: node, Reason: reason}
			return a.decideNode(cmd.Context(), key, "drained", dryRun, func() (*app.NodeDecision, app.Draft, error) { return a.caller().DrainNode(cmd.Context(), cluster, ev) })
		},
	}
	nodeFlags(cmd, &reason, &key, &dryRun)
	return cmd
}

// nodeFlags adds the flags of every decision about a node.
func nodeFlags(cmd *cobra.Command, reason, key *string, dryRun *bool) {
	cmd.Flags().StringVar(reason, "reason", "", "reason, kept in the log (required)")
	must(cmd.MarkFlagRequired("reason"))
	cmd.Flags().BoolVar(dryRun, "dry-run", false, "check the decision and append nothing")
	keyFlag(cmd, key)
}

func (a *Program) nodeRetireCommand() *cobra.Command {
	var gpu, reason, key string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "retire CLUSTER/NODE --reason TEXT",
		Short: "Remove a node, or one of its GPUs, from the fleet",
		Long: `Retire removes a node with all its GPUs from the fleet from now on. Registering it again brings it
back.

With --gpu it takes one GPU out of service and ends its faults. A GPU that a node no longer reports
counts as failed until it is seen again, another GPU is in its slot, or it is retired here.
Registering the node without it is not enough.

An admin or operator must sign, of the workspace that owns the cluster or of the workspace whose
operators decide everywhere.`,
		Example: "  quartermaster node retire lab/gpu-node-1 --reason \"lease is over\"\n" +
			"  quartermaster node retire lab/gpu-node-1 --gpu GPU-6f3f1c2a-0d9b-4c55-8a51-1f0f0a1c9a11 --reason \"sent back, case 4711\"",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			if err := checkReason(reason); err != nil {
				return err
			}
			cluster, node, err := nodeArgument(args[0])
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if gpu == "" {
				ev := &domain.NodeRetired{Node: node, Reason: reason}
				return a.decideNode(ctx, key, "retired", dryRun, func() (*app.NodeDecision, app.Draft, error) { return a.caller().RetireNode(ctx, cluster, ev) })
			}
			ev := &domain.GPURetired{Node: node, Reason: reason}
			if ev.GPU, err = domain.ParseGPUID(gpu); err != nil {
				return commandline.Usagef("--gpu: %w", err)
			}
			return a.decideNode(ctx, key, "retired", dryRun, func() (*app.NodeDecision, app.Draft, error) { return a.caller().RetireGPU(ctx, cluster, ev) })
		},
	}
	cmd.Flags().StringVar(&gpu, "gpu", "", "UUID of the GPU to retire (default the node with all its GPUs)")
	nodeFlags(cmd, &reason, &key, &dryRun)
	return cmd
}

// decideNode signs a drafted decision about a node and shows the node's new state.
func (a *Program) decideNode(ctx context.Context, keyPath, done string, dryRun bool, drafted func() (*app.NodeDecision, app.Draft, error)) error {
	var ans *app.NodeDecision
	by, at, err := a.change(ctx, keyPath, dryRun, func() (draft app.Draft, err error) {
		ans, draft, err = drafted()
		return draft, err
	})
	if err != nil {
		return err
	}
	what := ans.Cluster + "/" + ans.Node
	if ans.GPU != (domain.GPUID{}) {
		what = ans.GPU.String() + " of " + what
	}
	if dryRun {
		if a.json {
			return a.answerJSON(ans)
		}
		fmt.Fprintf(a.out, "%s would be %s; nothing appended: this was a dry run\n", what, done)
		return nil
	}
	// The decision takes effect at this time, which may be later than the time of the draft.
	ans.At, ans.Operator = at, by
	if a.proposing != nil { // it is not decided yet, so the health of the node is that of before
		if a.json {
			return a.answerJSON(ans)
		}
		fmt.Fprintf(a.out, "%s is %s, signed by %s\n", what, done, by)
		return nil
	}
	var gone *app.NotFoundError
	if ans.Health, err = a.caller().NodeHealth(ctx, ans.Cluster, ans.Node, ans.At); err != nil && !errors.As(err, &gone) {
		return err
	}
	if a.json {
		return a.answerJSON(ans)
	}
	state := "out of the fleet"
	if ans.Health != nil {
		state = ans.Health.State
	}
	fmt.Fprintf(a.out, "%s is %s, signed by %s; the node is %s\n", what, done, ans.Operator, state)
	return nil
}
