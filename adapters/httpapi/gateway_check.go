package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"quartermaster/domain"
	"quartermaster/projections"
)

// shards returns the present number of shards of the caller's cluster.
func (c *Caller) shards() int {
	if n := len(c.Shards); n > 0 {
		return c.Shards[n-1]
	}
	return 1
}

// checkKey checks the key of a record. foreign is another cluster that it names, or "". A
// *StatusError is for the whole batch.
func (c *Caller) checkKey(key []byte) (foreign string, err error) {
	if string(key) == c.Cluster {
		return "", nil
	}
	cluster, _, of, err := domain.ParseShardKey(string(key))
	switch {
	case err != nil:
		return "", err
	case cluster != c.Cluster:
		return strings.ToValidUTF8(cluster, "?"), nil
	case !slices.Contains(c.Shards, of):
		return "", refuse(
			http.StatusServiceUnavailable,
			"the key %.80q is of %d shards, but cluster %s is not known here to have had as many: "+
				"if that lasts, \"quartermaster cluster register %s --shards %d\", and change it back later",
			key, of, c.Cluster, c.Cluster, of,
		)
	}
	return "", nil
}

// check sets the partition of each record in a batch, and its key if it has none, and separates the
// acceptable records from the refused. The error is a *StatusError for the whole batch.
func (g *Gateway) check(caller Caller, recs []domain.Record) (*Accepted, []domain.Record, error) {
	ans := &Accepted{Shards: caller.shards()}
	taken := recs[:0]
	decoder := g.decoders.Get().(projections.Decoder)
	defer g.decoders.Put(decoder)
	var env domain.Envelope
	key := []byte(caller.Cluster)
	for i := range recs {
		rec := recs[i]
		if len(rec.Key) == 0 {
			rec.Key = key
		}
		rec.Partition = domain.PartitionOf(rec.Key, rec.Topic.Partitions())
		foreign, err := caller.checkKey(rec.Key)
		if foreign == "" && err == nil {
			foreign, err = g.checkOne(decoder, caller, &rec, &env)
		}
		var whole *StatusError
		if errors.As(err, &whole) {
			return nil, nil, whole
		}
		if foreign != "" {
			target, shown := foreign, foreign
			if !isPlainName(foreign) {
				target, shown = "", fmt.Sprintf("%.100q", foreign)
			}
			g.Denied(Denial{
				Principal: fmt.Sprintf("key %s of cluster %s", caller.KeyID, caller.Cluster), Target: target,
				Reason: fmt.Sprintf("its key pushes for cluster %s alone", caller.Cluster),
			})
			return nil, nil, refuse(
				http.StatusForbidden,
				"record %d is of cluster %s, but the key is of cluster %s; nothing was accepted",
				i, shown, caller.Cluster,
			)
		}
		if err == nil {
			taken = append(taken, rec)
			ans.Accepted++
			continue
		}
		g.Log.Warn("an event of a node was refused", "cluster", caller.Cluster, "index", i, "source", env.Source, "error", err)
		if len(ans.Refused) < maxRefusals {
			ans.Refused = append(ans.Refused, Refused{i, err.Error()})
		}
	}
	if len(recs)-ans.Accepted > maxRefusals {
		return nil, nil, refuse(
			http.StatusBadRequest,
			"more than %d records are not events that a node may send, the first: %s; nothing was accepted",
			maxRefusals, ans.Refused[0].Error,
		)
	}
	return ans, taken, nil
}

// checkOne checks one record. Foreign is another cluster that it names, or "".
func (g *Gateway) checkOne(d projections.Decoder, caller Caller, rec *domain.Record, env *domain.Envelope) (foreign string, err error) {
	*env = domain.Envelope{}
	if c := rec.Header("ce_cluster"); c != nil && string(c) != caller.Cluster {
		return strings.ToValidUTF8(string(c), "?"), nil
	}
	if err := d.Decode(rec, env); err != nil {
		return "", err
	}
	if prefix := SourceOf(caller.Cluster); !strings.HasPrefix(env.Source, prefix) {
		if rest, ok := strings.CutPrefix(env.Source, nodeSource); ok {
			if other, _, ok := strings.Cut(rest, "/"); ok && other != caller.Cluster {
				return strings.Clone(other), nil
			}
		}
		return "", fmt.Errorf("source %.100q does not begin with %s", env.Source, prefix)
	}
	if t := env.Event.Type(); !slices.Contains(fromNodes, t) {
		return "", fmt.Errorf("%s is not an event that a node may send", t)
	}
	if env.Cites != "" {
		return "", fmt.Errorf("it repairs %.100q, which only an operator may: quartermaster quarantine repair", env.Cites)
	}
	if n := max(env.Sequence, env.PreviousSequence); n > maxSequence {
		return "", fmt.Errorf(
			"sequence %d is beyond the limit of %d: it must count the events of an incarnation from 1",
			n, uint64(maxSequence),
		)
	}
	// Every report to every workspace mentions a record in quarantine, so a record that folds
	// would quarantine must not enter the log.
	if err := domain.Validate(env); err != nil {
		return "", err
	}
	now := domain.InstantOf(g.Keys.Now())
	maxAge := cmp.Or(g.MaxAge, time.Duration(domain.MaxAge))
	maxAhead := cmp.Or(g.MaxAhead, time.Duration(domain.MaxAhead))
	if err := domain.CheckAge(env, now, maxAge, maxAhead); err != nil {
		return "", err
	}
	return "", env.CheckSignature()
}

// maxSequence bounds the sequence numbers of nodes: a thousand events a second for thirty
// years. A greater one would open a gap for events that will never arrive.
const maxSequence = 1 << 40

// isPlainName reports whether an untrusted text may be recorded as the name of a cluster.
func isPlainName(s string) bool {
	if len(s) > 256 || !utf8.ValidString(s) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
