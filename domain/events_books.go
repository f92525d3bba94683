package domain

// Events of qm.books, keyed by ledger entity: what finance and auditors did.

// ClosePrepared proposes to close a period at a position.
type ClosePrepared struct {
	Entity   string   `json:"entity"`
	Period   Interval `json:"period"`
	Position string   `json:"position"`
	Method   string   `json:"method"`
	Digest   []byte   `json:"digest"` // SHA-256 of the canonical leaves
	Total    Money    `json:"total"`
}

// CloseApproved is the second person's consent to a prepared close.
type CloseApproved struct {
	Entity string   `json:"entity"`
	Period Interval `json:"period"`
	Digest []byte   `json:"digest"` // of what was prepared
}

// BooksClosed says that a period of ours is closed: later changes are posted into the open one.
type BooksClosed struct {
	Entity   string   `json:"entity"`
	Period   Interval `json:"period"`
	Position string   `json:"position"`
	Method   string   `json:"method"`
	Digest   []byte   `json:"digest"`
}

// ExportMade records that figures left the house.
type ExportMade struct {
	Entity   string `json:"entity"`
	Export   string `json:"export"`
	Format   string `json:"format"` // csv, parquet, xlsx
	Position string `json:"position"`
	Method   string `json:"method"`
	Rows     uint64 `json:"rows"`
	Digest   []byte `json:"digest"`
}

// CheckpointSigned publishes what the log holds, as a C2SP signed note.
type CheckpointSigned struct {
	Entity   string `json:"entity"`
	Position string `json:"position"`
	Note     []byte `json:"note"`
}

// QuarantineResolved says what became of a quarantined record.
type QuarantineResolved struct {
	Entity     string `json:"entity"`
	Topic      Topic  `json:"topic"`
	Partition  uint32 `json:"partition"`
	Offset     int64  `json:"offset"`
	Resolution string `json:"resolution"` // reappended, discarded
	Reason     string `json:"reason"`
}

// AccessDenied records an attempt that was refused.
type AccessDenied struct {
	Entity    string `json:"entity"`
	Principal string `json:"principal"`
	Action    string `json:"action"`
	Target    string `json:"target"`
	Reason    string `json:"reason"`
}
