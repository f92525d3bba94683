package app

import (
	"context"

	"quartermaster/domain/recommend"
)

// present returns the recommendations of the present.
func (c *Caller) present(context.Context) (*recommend.Advice, error) { return &recommend.Advice{}, nil }
