package cli

import (
	"context"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

// change drafts something, signs it and has it decided. A dry run only returns the error that
// deciding would return. by is the signer, at the time of the decision.
func (a *Program) change(ctx context.Context, key string, dryRun bool, draft func() (app.Draft, error)) (by string, at domain.Instant, err error) {
	if dryRun {
		if err := a.caller().Begin(ctx, true); err != nil {
			return "", 0, err
		}
		d, err := draft()
		if err != nil {
			return "", 0, err
		}
		return "", 0, a.tryOut(ctx, key, d)
	}
	s, err := a.signer(ctx, key)
	if err != nil {
		return "", 0, err
	}
	d, err := draft()
	if err != nil {
		return "", 0, err
	}
	p, err := a.decided(ctx, s, d)
	if err != nil {
		return "", 0, err
	}
	return s.name, p.Events[0].Time, nil
}
