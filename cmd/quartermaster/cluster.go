package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/remotewrite"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// keyAnswer is what answers a new key, which is shown this once.
type keyAnswer struct {
	Cluster       string         `json:"cluster"`
	Workspace     string         `json:"workspace,omitempty"`
	Registered    bool           `json:"registered"` // the registration is new or changed
	KeyID         string         `json:"key_id"`
	Key           string         `json:"key,omitempty"`
	Prometheus    string         `json:"prometheus,omitempty"` // remote_write for its Prometheus
	KeyFile       string         `json:"key_file,omitempty"`
	Expires       domain.Instant `json:"expires,omitempty"`
	Previous      string         `json:"previous_key_id,omitempty"`
	PreviousUntil domain.Instant `json:"previous_valid_until,omitempty"`
}

func (a *app) clusterCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "Register clusters, and see which keys theirs are"}
	cmd.AddCommand(a.clusterRegisterCommand(), a.clusterListCommand())
	return cmd
}

// newKeyFlags are what every command that makes a key asks.
type newKeyFlags struct {
	operator string // key file
	expires  time.Duration
	file     string
}

func (f *newKeyFlags) on(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.expires, "expires", 0, "how long the new key holds, for example 8760h; for ever by default")
	cmd.Flags().StringVar(&f.file, "key-file", "", "write the new key to this file, for its owner alone, instead of showing it")
	keyFlag(cmd, &f.operator)
}

func (f *newKeyFlags) check() error {
	if f.expires < 0 {
		return commandline.Usagef("--expires %s: want a time ahead", f.expires)
	}
	if f.file == "" {
		return nil
	}
	if _, err := os.Lstat(f.file); err == nil {
		return fmt.Errorf("--key-file %s: the file exists; name a new one", f.file)
	}
	return nil
}

func (f *newKeyFlags) end(at domain.Instant) domain.Instant {
	if f.expires == 0 {
		return 0
	}
	return at + domain.Instant(f.expires)
}

func (a *app) clusterRegisterCommand() *cobra.Command {
	var (
		reg       domain.ClusterRegistered
		class     string
		workspace string
		gateway   string
		scrape    time.Duration
		flags     newKeyFlags
	)
	cmd := &cobra.Command{
		Use:   "register NAME",
		Short: "Register a cluster and make the key with which it pushes events",
		Long: `Register declares a cluster, or changes what is declared of it, and makes its
first key. Nodes (node-reporter) and Prometheus show the key when they push, and
can push for this cluster alone. An admin or operator of the workspace signs it.

The key is shown once. The log keeps an HMAC of it, from which nobody can find
it. Of a cluster that "quartermaster apply" declared, the name is enough.

With --gateway it also prints the remote_write stanza for the Prometheus of the
cluster, which sends what dcgm-exporter, vLLM, SGLang, TGI and kube-state-metrics
say, and nothing else.

JSON keys: cluster, workspace, registered (the declaration is new or changed),
key_id, key (not with --key-file), key_file, prometheus (with --gateway), expires.`,
		Example: "  quartermaster cluster register lab --provider aws --class hyperscaler --region us-east-1 --key-file lab.key\n" +
			"  quartermaster cluster register train-eu --workspace research --json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			reg.ProviderClass = domain.ProviderClass(class)
			stanza, err := stanzaFor(args[0], gateway, scrape)
			if err != nil {
				return err
			}
			return a.registerCluster(cmd.Context(), args[0], workspace, &reg, stanza, &flags)
		},
	}
	f := cmd.Flags()
	f.StringVar(&workspace, "workspace", "", "workspace that owns it (default platform)")
	f.StringVar(&reg.Provider, "provider", "", "who supplies it, for example aws")
	f.StringVar(&class, "class", "", "hyperscaler, neocloud, reseller or owned")
	f.StringVar(&reg.Region, "region", "", "region that it is in")
	f.StringVar(&reg.BillingAccount, "account", "", "account that it is billed to")
	f.StringSliceVar(&reg.Certifications, "certification", nil, "certification that it has; may be given again")
	f.StringVar(&reg.Name, "title", "", "name for people")
	f.StringVar(&gateway, "gateway", "", "address at which Prometheus reaches the gateway, for example https://quartermaster.example:7443")
	f.DurationVar(&scrape, "scrape-interval", 0, "scrape_interval of that Prometheus (default 30s)")
	flags.on(cmd)
	return cmd
}

// stanzaFor returns what the Prometheus of a cluster needs to write to a gateway, "" without one.
func stanzaFor(cluster, gateway string, scrape time.Duration) (string, error) {
	if gateway == "" {
		return "", nil
	}
	u, err := url.Parse(gateway)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return "", fmt.Errorf("--gateway %.100q: want an address such as https://quartermaster.example:7443", gateway)
	}
	if scrape < 0 || scrape > time.Hour {
		return "", commandline.Usagef("--scrape-interval %s: want more than 0 and at most 1h", scrape)
	}
	return remotewrite.Stanza(cluster, u.JoinPath("/api/v1/write").String(), "/etc/prometheus/quartermaster.key", scrape), nil
}

func (a *app) registerCluster(ctx context.Context, name, workspace string, reg *domain.ClusterRegistered, stanza string, flags *newKeyFlags) error {
	if err := errors.Join(a.notDemo(), flags.check()); err != nil {
		return err
	}
	return a.with(ctx, func(h *home) error {
		s, err := h.signer(ctx, flags.operator) // makes the first operator
		if err != nil {
			return err
		}
		at := now()
		env := domain.Envelope{Time: at, Subject: name, Cluster: name, Event: reg}
		var declared, same bool
		if err := h.view(ctx, func(v projections.View) error {
			auth, err := registry.NewAuthority(v)
			if err != nil {
				return err
			}
			before, err := registry.Declared(v, auth, &env)
			if err != nil {
				return err
			}
			if declared = before != nil; declared {
				fillCluster(reg, before.Event.(*domain.ClusterRegistered))
				if workspace == "" {
					workspace = before.Workspace
				}
				if same, err = projections.SameEvent(before.Event, reg); err != nil {
					return err
				}
				same = same && workspace == before.Workspace
			}
			if workspace == "" {
				workspace = platform
			}
			spaces, err := v.Scopes(projections.TableWorkspaces)
			if err == nil && !slices.Contains(spaces, workspace) {
				err = fmt.Errorf("workspace %q is not known; those that are: %s", workspace, strings.Join(spaces, ", "))
			}
			if err != nil {
				return err
			}
			live, err := liveKeys(v, name, at)
			if err == nil && len(live) > 0 {
				err = fmt.Errorf("cluster %s has key %s already; \"quartermaster key rotate %s\" makes another", name, live[len(live)-1].KeyID, name)
			}
			return err
		}); err != nil {
			return err
		}
		env.Workspace = workspace
		if !declared && (reg.Provider == "" || reg.ProviderClass == "" || reg.Region == "") {
			return fmt.Errorf("cluster %s is not declared yet: give --provider, --class and --region", name)
		}
		key, err := domain.NewClusterKey(rand.Reader)
		if err != nil {
			return err
		}
		envs := []domain.Envelope{{Time: at, Subject: name, Cluster: name, Workspace: workspace, Event: &domain.ClusterKeyIssued{
			KeyID: key.ID, MAC: key.MAC(name), Expires: flags.end(at),
		}}}
		if !same {
			envs = slices.Insert(envs, 0, env)
		}
		ans := keyAnswer{Cluster: name, Workspace: workspace, Registered: !same, KeyID: key.ID, Prometheus: stanza, Expires: flags.end(at)}
		return h.issue(ctx, "cluster-register", s, envs, key, &ans, flags.file)
	})
}

// fillCluster completes a registration with what was declared before.
func fillCluster(reg, before *domain.ClusterRegistered) {
	for _, f := range []struct {
		now    *string
		before string
	}{
		{&reg.Name, before.Name}, {&reg.Provider, before.Provider}, {(*string)(&reg.ProviderClass), string(before.ProviderClass)},
		{&reg.Region, before.Region}, {&reg.BillingAccount, before.BillingAccount},
	} {
		if *f.now == "" {
			*f.now = f.before
		}
	}
	if len(reg.Certifications) == 0 {
		reg.Certifications = before.Certifications
	}
	reg.Labels = before.Labels
}

// liveKeys returns the keys of a cluster that hold, by when they were issued.
func liveKeys(v projections.View, cluster string, at domain.Instant) ([]registry.ClusterKeyEntry, error) {
	keys, err := registry.ClusterKeys(v)
	return slices.DeleteFunc(keys, func(k registry.ClusterKeyEntry) bool { return k.Cluster != cluster || !k.Live(at) }), err
}

// issue appends the events that make a key, and shows it or writes it to a file.
// The file is written first: a key that the log knows and nobody has is of no use.
func (h *home) issue(ctx context.Context, command string, s signer, envs []domain.Envelope, key domain.ClusterKey, ans *keyAnswer, file string) error {
	if file != "" {
		if err := writeNew(file, key.String()+"\n"); err != nil {
			return fmt.Errorf("--key-file: %w", err)
		}
		ans.KeyFile = file
	} else {
		ans.Key = key.String()
	}
	if err := h.decide(ctx, command, s, envs); err != nil {
		if file != "" {
			err = errors.Join(err, os.Remove(file))
		}
		return err
	}
	a := h.app
	if a.json {
		return a.answerJSON(ans)
	}
	if ans.Registered {
		fmt.Fprintf(a.out, "cluster %s is registered in workspace %s\n", ans.Cluster, ans.Workspace)
	}
	if file != "" {
		fmt.Fprintf(a.out, "its key %s is in %s\n", ans.KeyID, file)
	} else {
		fmt.Fprintf(a.out, "its key %s, shown this once:\n\n  %s\n\n", ans.KeyID, ans.Key)
	}
	if ans.Prometheus != "" {
		fmt.Fprintf(a.out, "\nfor its Prometheus, with the key in a file beside:\n\n%s\n", ans.Prometheus)
	}
	if ans.Expires != 0 {
		fmt.Fprintf(a.out, "it holds until %s\n", ans.Expires)
	}
	if ans.Previous != "" {
		fmt.Fprintf(a.out, "key %s holds until %s: give the new one to the nodes and to Prometheus before\n", ans.Previous, ans.PreviousUntil)
	}
	return nil
}

// writeNew writes a new file that its owner alone may read.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// clusterEntry is a cluster with its keys.
type clusterEntry struct {
	Cluster       string     `json:"cluster"`
	Workspace     string     `json:"workspace"`
	Provider      string     `json:"provider"`
	ProviderClass string     `json:"provider_class"`
	Region        string     `json:"region"`
	Nodes         int        `json:"nodes"`
	Keys          []keyEntry `json:"keys"`
}

type keyEntry struct {
	registry.ClusterKeyEntry
	Live bool `json:"live"`
}

func (a *app) clusterListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the clusters and which of their keys hold",
		Long: `List shows every cluster with the keys it has had.

JSON keys: clusters (cluster, workspace, provider, provider_class, region, nodes,
keys (cluster, key_id, issued, until, why, revoked, live)).`,
		Example: "  quartermaster cluster list\n  quartermaster cluster list --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.read(cmd.Context(), func(h *home) error {
				at, list := now(), []clusterEntry{}
				if err := h.view(cmd.Context(), func(v projections.View) error {
					inv, err := inventory.New(v, inventory.Filter{At: at})
					if err != nil {
						return err
					}
					keys, err := registry.ClusterKeys(v)
					if err != nil {
						return err
					}
					for i := range inv.Clusters {
						c := &inv.Clusters[i]
						e := clusterEntry{
							Cluster: c.Cluster, Workspace: c.Workspace, Provider: c.Provider, ProviderClass: string(c.ProviderClass),
							Region: c.Region, Nodes: len(c.Nodes), Keys: []keyEntry{},
						}
						for _, k := range keys {
							if k.Cluster == c.Cluster {
								e.Keys = append(e.Keys, keyEntry{k, k.Live(at)})
							}
						}
						list = append(list, e)
					}
					return nil
				}); err != nil {
					return err
				}
				if a.json {
					return a.answerJSON(map[string]any{"clusters": list})
				}
				t := a.table("cluster", "workspace", "provider", "region", "nodes", "key", "holds")
				for _, c := range list {
					first := true
					row := func(key, holds string) {
						if first {
							t.AppendRow([]any{c.Cluster, c.Workspace, c.Provider, c.Region, c.Nodes, key, holds})
						} else {
							t.AppendRow([]any{"", "", "", "", "", key, holds})
						}
						first = false
					}
					for _, k := range c.Keys {
						switch {
						case !k.Live:
							row(k.KeyID, fmt.Sprintf("no, since %s: %s", k.Until, k.Why))
						case k.Until != 0:
							row(k.KeyID, fmt.Sprintf("until %s: %s", k.Until, k.Why))
						default:
							row(k.KeyID, "yes")
						}
					}
					if first {
						row("none", "")
					}
				}
				t.Render()
				return nil
			})
		},
	}
	return cmd
}

func (a *app) keyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "key", Short: "Rotate and revoke the keys with which clusters push events"}
	cmd.AddCommand(a.keyRotateCommand(), a.keyRevokeCommand())
	return cmd
}

func (a *app) keyRotateCommand() *cobra.Command {
	var (
		overlap time.Duration
		flags   newKeyFlags
	)
	cmd := &cobra.Command{
		Use:   "rotate CLUSTER",
		Short: "Make a new key of a cluster; the one before holds a while longer",
		Long: `Rotate makes a new key. The one before holds for --overlap, so that nodes and
Prometheus can be given the new one in turn; after that the new one alone. An
admin or operator of the cluster's workspace signs it.

JSON keys: cluster, registered (always false), key_id, key (not with --key-file),
key_file, expires, previous_key_id, previous_valid_until.`,
		Example: "  quartermaster key rotate lab --overlap 48h --key-file lab.key.new",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(a.notDemo(), flags.check()); err != nil {
				return err
			}
			if overlap < 0 {
				return commandline.Usagef("--overlap %s: want 0 or a time ahead", overlap)
			}
			ctx, name := cmd.Context(), args[0]
			return a.with(ctx, func(h *home) error {
				at := now()
				var live []registry.ClusterKeyEntry
				if err := h.view(ctx, func(v projections.View) (err error) {
					live, err = liveKeys(v, name, at)
					return err
				}); err != nil {
					return err
				}
				switch len(live) {
				case 0:
					return fmt.Errorf("cluster %q has no key that holds; \"quartermaster cluster register\" makes one, \"quartermaster cluster list\" shows the clusters", name)
				case 1:
				default:
					return fmt.Errorf("cluster %s has two keys already, %s until %s; wait, or \"quartermaster key revoke %s\"", name, live[0].KeyID, live[0].Until, live[0].KeyID)
				}
				s, err := h.signer(ctx, flags.operator)
				if err != nil {
					return err
				}
				key, err := domain.NewClusterKey(rand.Reader)
				if err != nil {
					return err
				}
				ans := keyAnswer{Cluster: name, KeyID: key.ID, Expires: flags.end(at), Previous: live[0].KeyID, PreviousUntil: at + domain.Instant(overlap)}
				return h.issue(ctx, "key-rotate", s, []domain.Envelope{{Time: at, Subject: key.ID, Cluster: name, Event: &domain.ClusterKeyRotated{
					KeyID: key.ID, MAC: key.MAC(name), Expires: ans.Expires, PreviousKeyID: ans.Previous, PreviousValidUntil: ans.PreviousUntil,
				}}}, key, &ans, flags.file)
			})
		},
	}
	cmd.Flags().DurationVar(&overlap, "overlap", 24*time.Hour, "how long the key before holds")
	flags.on(cmd)
	return cmd
}

func (a *app) keyRevokeCommand() *cobra.Command {
	var reason, operator string
	cmd := &cobra.Command{
		Use:   "revoke KEY-ID",
		Short: "End a key at once",
		Long: `Revoke ends a key: within five seconds nobody is let in with it any more. What
was pushed with it stays. An admin or operator of the cluster's workspace signs it.

JSON keys: cluster, key_id, revoked_at, keys_left (of the cluster, that hold).`,
		Example: "  quartermaster key revoke k7ymqv3x2a --reason \"laptop lost\"",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.notDemo(); err != nil {
				return err
			}
			ctx := cmd.Context()
			// Whoever has the key at hand may well give all of it.
			id := args[0]
			if k, err := domain.ParseClusterKey(id); err == nil {
				id = k.ID
			}
			return a.with(ctx, func(h *home) error {
				var found *registry.ClusterKeyEntry
				left, at := 0, now()
				if err := h.view(ctx, func(v projections.View) error {
					keys, err := registry.ClusterKeys(v)
					for i := range keys {
						if keys[i].KeyID == id {
							found = &keys[i]
						}
					}
					for i := range keys {
						if found != nil && keys[i].Cluster == found.Cluster && keys[i].KeyID != id && keys[i].Live(at) {
							left++
						}
					}
					return err
				}); err != nil {
					return err
				}
				if found == nil {
					return fmt.Errorf("no cluster has a key %.20q; \"quartermaster cluster list\" shows them", id)
				}
				if found.Revoked {
					return fmt.Errorf("key %s was revoked already, at %s", id, found.Until)
				}
				s, err := h.signer(ctx, operator)
				if err != nil {
					return err
				}
				if err := h.decide(ctx, "key-revoke", s, []domain.Envelope{{Time: at, Subject: id, Cluster: found.Cluster, Event: &domain.ClusterKeyRevoked{KeyID: id, Reason: reason}}}); err != nil {
					return err
				}
				if a.json {
					return a.answerJSON(map[string]any{"cluster": found.Cluster, "key_id": id, "revoked_at": at, "keys_left": left})
				}
				fmt.Fprintf(a.out, "key %s of cluster %s is revoked\n", id, found.Cluster)
				if left == 0 {
					fmt.Fprintf(a.out, "the cluster has no key left: \"quartermaster cluster register %s\" makes one\n", found.Cluster)
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who read the log")
	keyFlag(cmd, &operator)
	return cmd
}
