package postgres

import (
	"context"
	"fmt"
)

// Secret returns 32 bytes that every instance knows and no reader. The first caller's candidate, which MUST be random,
// becomes the secret.
func (db *DB) Secret(ctx context.Context, candidate []byte) (secret []byte, err error) {
	const first = `insert into quartermaster.secret (secret) values ($1) on conflict do nothing`
	if _, err = db.ExecContext(ctx, first, candidate); err == nil {
		err = db.QueryRowContext(ctx, `select secret from quartermaster.secret`).Scan(&secret)
	}
	if err != nil {
		return nil, fmt.Errorf("read the secret of the instances: %w", err)
	}
	return secret, nil
}
