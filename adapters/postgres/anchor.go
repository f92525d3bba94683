package postgres

import (
	"database/sql"
	"encoding/binary"
	"fmt"

	"quartermaster/domain"
)

// anchorSQL selects the last record before the position of a partition p, in the encoding that
// [anchor] scans.
const anchorSQL = `int8send(p.last_offset) || int4send(p.last_epoch) || p.last_sha256`

// anchor scans what anchorSQL selects. Null means no record.
type anchor domain.Anchor

// Scan implements [sql.Scanner].
func (a *anchor) Scan(v any) error {
	*a = anchor{}
	if v == nil {
		return nil
	}
	b, ok := v.([]byte)
	if !ok || len(b) != 8+4+len(a.Hash) {
		return fmt.Errorf("last record of a partition: %d bytes of %T, must be %d", len(b), v, 8+4+len(a.Hash))
	}
	a.Offset, a.Epoch = int64(binary.BigEndian.Uint64(b)), int32(binary.BigEndian.Uint32(b[8:]))
	copy(a.Hash[:], b[12:])
	return nil
}

// anchorColumns returns the values for the columns last_offset, last_epoch and last_sha256.
func anchorColumns(a domain.Anchor) (offset sql.NullInt64, epoch sql.NullInt32, hash []byte) {
	if a.IsZero() {
		return offset, epoch, nil
	}
	return sql.NullInt64{Int64: a.Offset, Valid: true}, sql.NullInt32{Int32: a.Epoch, Valid: true}, a.Hash[:]
}
