package wire

import (
	"quartermaster/domain"
	eventsv1 "quartermaster/schemas/events/v1"
)

// Fields of the events of qm.access, keyed by workspace: who may read, and who did.

func accessGranted(m *mover, p *eventsv1.AccessGranted, d *domain.AccessGranted) {
	text(m, "grant", &p.Grant, &d.Grant)
	text(m, "principal", &p.Principal, &d.Principal)
	text(m, "role", &p.Role, &d.Role)
	m.texts("clusters", &p.Clusters, &d.Clusters)
	m.instant("until", &p.Until, &d.Until)
}

func accessRevoked(m *mover, p *eventsv1.AccessRevoked, d *domain.AccessRevoked) {
	text(m, "grant", &p.Grant, &d.Grant)
	text(m, "reason", &p.Reason, &d.Reason)
}

func serviceKeyIssued(m *mover, p *eventsv1.ServiceKeyIssued, d *domain.ServiceKeyIssued) {
	text(m, "account", &p.Account, &d.Account)
	text(m, "key_id", &p.KeyId, &d.KeyID)
	m.bytes("mac", &p.Mac, &d.MAC)
	m.instant("expires", &p.Expires, &d.Expires)
	text(m, "previous_key_id", &p.PreviousKeyId, &d.PreviousKeyID)
	m.instant("previous_valid_until", &p.PreviousValidUntil, &d.PreviousValidUntil)
}

func serviceKeyRevoked(m *mover, p *eventsv1.ServiceKeyRevoked, d *domain.ServiceKeyRevoked) {
	text(m, "key_id", &p.KeyId, &d.KeyID)
	text(m, "reason", &p.Reason, &d.Reason)
}

func sessionEnded(m *mover, p *eventsv1.SessionEnded, d *domain.SessionEnded) {
	text(m, "principal", &p.Principal, &d.Principal)
	m.instant("at", &p.At, &d.At)
	text(m, "reason", &p.Reason, &d.Reason)
}

func accessRecorded(m *mover, p *eventsv1.AccessRecorded, d *domain.AccessRecorded) {
	text(m, "principal", &p.Principal, &d.Principal)
	text(m, "journal", &p.Journal, &d.Journal)
	m.interval("window", &p.Window, &d.Window)
	list(m, "asked", &p.Asked, &d.Asked, accessRead)
}

func accessRead(m *mover, p *eventsv1.AccessRead, d *domain.AccessRead) {
	text(m, "operation", &p.Operation, &d.Operation)
	m.texts("workspaces", &p.Workspaces, &d.Workspaces)
	same(m, &p.Count, &d.Count)
	same(m, &p.Refused, &d.Refused)
	text(m, "position", &p.Position, &d.Position)
	m.bytes("digest", &p.Digest, &d.Digest)
}
