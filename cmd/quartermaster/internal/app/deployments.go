package app

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/registry"
)

// DeclareDeployments declares deployments, and the removal of some, for the principal: in the workspaces that they see,
// and nothing else. It returns the difference from the log, as [Caller.Apply] does. Declaring the same again changes
// nothing. Nothing is signed, because no deployment is.
func (c *Caller) DeclareDeployments(ctx context.Context, d *Declarations, dryRun bool) (*Changes, error) {
	var errs []error
	for i := range d.envs {
		env, entry := &d.envs[i], d.entries[i]
		switch env.Event.(type) {
		case *domain.DeploymentChanged, *domain.DeploymentRemoved:
		default:
			errs = append(errs, entry.Fault("id", "%s is not declared here: only deployments and removed_deployments are", env.Event.Type()))
			continue
		}
		// What is said of a workspace that is not theirs is what is said of one that is not there.
		if !c.app.scope().Sees(env.Workspace, env.Cluster) {
			errs = append(errs, entry.Fault("workspace", "workspace %q is not known, or not one that you may declare deployments of in cluster %q", env.Workspace, env.Cluster))
		}
	}
	if len(errs) > 0 {
		return nil, &InvalidError{Err: errors.Join(errs...)}
	}
	ans, draft, err := c.Apply(ctx, d)
	if err != nil || len(draft.Events) == 0 {
		return ans, err
	}
	h, err := c.conn(ctx, Appending)
	if err != nil {
		return nil, err
	}
	if err := h.View(ctx, func(v projections.View) error { return c.ofOthers(v, draft.Events) }); err != nil || dryRun {
		return ans, err
	}
	envs := make([]*domain.Envelope, len(draft.Events))
	for i := range draft.Events {
		envs[i] = &draft.Events[i]
		if err := domain.Validate(envs[i]); err != nil {
			return nil, &InvalidError{Err: err}
		}
	}
	stream := h.Stream("deployments")
	for batch := range slices.Chunk(envs, appendBatch) {
		if err := stream.Append(ctx, batch...); err != nil {
			return nil, Unavailable(fmt.Errorf("append to the log: %w", err))
		}
	}
	ans.Applied = true
	return ans, h.CatchUp(ctx)
}

// ofOthers returns a [DeniedError] if an event would change a deployment of a workspace that the principal does not see.
func (c *Caller) ofOthers(v projections.View, envs []domain.Envelope) error {
	whole := access.Beneath(v)
	auth, err := registry.NewAuthority(v)
	if err != nil {
		return err
	}
	for i := range envs {
		before, err := registry.Declared(whole, auth, &envs[i])
		if err != nil {
			return err
		}
		if before != nil && !c.app.scope().Sees(before.Workspace, envs[i].Cluster) {
			return &DeniedError{Err: fmt.Errorf("deployment %q of cluster %q cannot be declared: choose another name", envs[i].Subject, envs[i].Cluster)}
		}
	}
	return nil
}
