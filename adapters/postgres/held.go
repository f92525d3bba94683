package postgres

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"quartermaster/projections"
)

// heldRow is a row of usage_held. Times are in milliseconds, activity in thousandths of a
// millisecond.
type heldRow struct {
	workspace, cluster, deployment, node, source string
	hour                                         int64
	whole, part, known, active                   uint64
	fresh                                        bool
}

// heldOf returns what each workspace held in a usage hour: a row for each workspace, deployment and
// observer, including holders whose time was later given to others.
func heldOf(k projections.Key, u *projections.UsageHour) []heldRow {
	var out []heldRow
	cluster, _ := columnText(k.Scope, maxHeld)
	node, _ := columnText(k.ID, maxHeld)
	rows := make([]int, len(u.Holders)) // row index by holder; several holders may be pods of one deployment
	for i := range u.Observers {
		o := &u.Observers[i]
		source, _ := columnText(o.Source, maxHeld)
		start := len(out)
		for h, holder := range u.Holders {
			workspace, _ := columnText(holder.Workspace, maxHeld)
			deployment, _ := columnText(holder.Deployment, maxHeld)
			rows[h] = start
			for rows[h] < len(out) && (out[rows[h]].workspace != workspace || out[rows[h]].deployment != deployment) {
				rows[h]++
			}
			if rows[h] == len(out) {
				out = append(out, heldRow{
					workspace: workspace, cluster: cluster, deployment: deployment, node: node, source: source,
					hour: k.Hour,
				})
			}
		}
		for j := range o.Devices {
			d := &o.Devices[j]
			for _, s := range d.Segments {
				if s.Holder == 0 {
					continue
				}
				r := &out[rows[s.Holder-1]]
				if d.Cut > 0 || d.Replica > 0 {
					r.part += uint64(s.To - s.From)
				} else {
					r.whole += uint64(s.To - s.From)
				}
				r.known += uint64(s.Known)
				r.active += s.Active
			}
		}
	}
	return out
}

// appendChanged appends the rows of an hour that must be stored. before are the rows that are
// stored already; equal ones are left out. fresh says that rows missing from before are certainly
// not in the database.
func appendChanged(out, now, before []heldRow, fresh bool) []heldRow {
	for _, r := range now {
		i := slices.IndexFunc(before, func(b heldRow) bool {
			return b.deployment == r.deployment && b.workspace == r.workspace && b.source == r.source
		})
		if i >= 0 && before[i] == r || i < 0 && r.whole+r.part == 0 {
			continue
		}
		// A holder that was not listed before has no stored row.
		r.fresh = fresh && i < 0
		out = append(out, r)
	}
	return out
}

func (r *heldRow) compare(s *heldRow) int {
	return cmp.Or(
		strings.Compare(r.workspace, s.workspace),
		strings.Compare(r.cluster, s.cluster),
		strings.Compare(r.deployment, s.deployment),
		strings.Compare(r.node, s.node),
		cmp.Compare(r.hour, s.hour),
		strings.Compare(r.source, s.source),
	)
}

const (
	heldColumnNames = heldKey + ", gpu_seconds, slice_seconds, measured_seconds, active_seconds"
	heldConflict    = "on conflict (" + heldKey + ") do update set " +
		"gpu_seconds = excluded.gpu_seconds, slice_seconds = excluded.slice_seconds, " +
		"measured_seconds = excluded.measured_seconds, active_seconds = excluded.active_seconds"
)

// heldTarget describes how to write usage_held in a schema.
func heldTarget(schema string) target[heldRow] {
	return target[heldRow]{
		insert: heldInsertSQL(schema), conflict: heldConflict, arrays: heldArrays,
		size: func(r *heldRow) int {
			return len(r.workspace) + len(r.cluster) + len(r.deployment) + len(r.node) + len(r.source) + 80
		},
		fresh: func(r *heldRow) bool { return r.fresh },
	}
}

func heldInsertSQL(schema string) string {
	return fmt.Sprintf(`insert into %s.%s (%s)
		select u.workspace, u.cluster, u.deployment, u.node, to_timestamp(u.hour * 3600), u.source,
			u.whole * 0.001, u.part * 0.001, u.known * 0.001, u.active * 0.000001
		from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[],
			$7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[])
			u(workspace, cluster, deployment, node, hour, source, whole, part, known, active)`,
		schema, held, heldColumnNames)
}

func heldArrays(rows []heldRow) []any {
	n := len(rows)
	text := func(of func(*heldRow) string) []byte {
		a := newArray(oidText, 24*n)
		for i := range rows {
			a.text(of(&rows[i]))
		}
		return a.value()
	}
	number := func(of func(*heldRow) int64) []byte {
		a := newArray(oidInt8, 12*n)
		for i := range rows {
			a.int(of(&rows[i]))
		}
		return a.value()
	}
	return []any{
		text(func(r *heldRow) string { return r.workspace }), text(func(r *heldRow) string { return r.cluster }),
		text(func(r *heldRow) string { return r.deployment }), text(func(r *heldRow) string { return r.node }),
		number(func(r *heldRow) int64 { return r.hour }), text(func(r *heldRow) string { return r.source }),
		number(func(r *heldRow) int64 { return int64(r.whole) }), number(func(r *heldRow) int64 { return int64(r.part) }),
		number(func(r *heldRow) int64 { return int64(r.known) }), number(func(r *heldRow) int64 { return int64(r.active) }),
	}
}
