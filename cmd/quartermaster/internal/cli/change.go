package cli

import (
	"context"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

// change drafts something and has it decided, or on a dry run says only what it would be
// refused for. It returns who signed it and when it was decided.
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
