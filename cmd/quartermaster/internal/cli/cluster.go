package cli

import (
	"context"
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
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

// keyAnswer is the answer for a new key, or for a changed cluster that keeps its key. The key is
// shown only once.
type keyAnswer struct {
	Cluster       string         `json:"cluster"`
	Workspace     string         `json:"workspace,omitempty"`
	Registered    bool           `json:"registered"` // the registration is new or changed
	Shards        uint32         `json:"shards,omitempty"`
	KeyID         string         `json:"key_id,omitempty"`     // empty: it keeps the key that it has
	Key           string         `json:"key,omitempty"`        // not with --key-file
	Prometheus    string         `json:"prometheus,omitempty"` // remote_write for its Prometheus
	KeyFile       string         `json:"key_file,omitempty"`
	Scopes        []string       `json:"scopes,omitempty"` // what the key may be used for
	Expires       domain.Instant `json:"expires,omitempty"`
	Previous      string         `json:"previous_key_id,omitempty"`
	PreviousUntil domain.Instant `json:"previous_valid_until,omitempty"`
}

func (a *Program) clusterCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "Register clusters and list their keys"}
	cmd.AddCommand(a.clusterRegisterCommand(), a.clusterListCommand())
	return cmd
}

// newKeyFlags are the flags of every command that creates a key.
type newKeyFlags struct {
	operator string // key file
	expires  time.Duration
	file     string
	scopes   []string
}

func (f *newKeyFlags) on(cmd *cobra.Command, scopes string) {
	cmd.Flags().DurationVar(&f.expires, "expires", 0, "lifetime of the new key, for example 8760h (default unlimited)")
	cmd.Flags().StringVar(&f.file, "key-file", "", "write the new key to this file, readable by its owner only, instead of printing it")
	cmd.Flags().StringSliceVar(&f.scopes, "scope", nil, scopes)
	keyFlag(cmd, &f.operator)
}

func (f *newKeyFlags) check() error {
	for _, s := range f.scopes {
		if !slices.Contains(domain.KeyScopes(), s) {
			return commandline.Usagef("--scope %.40q: want %s", s, strings.Join(domain.KeyScopes(), " or "))
		}
	}
	if f.expires < 0 {
		return commandline.Usagef("--expires %s: want a positive duration", f.expires)
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

func (a *Program) clusterRegisterCommand() *cobra.Command {
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
		Short: "Register a cluster and create the key that it pushes events with",
		Long: `Register declares a cluster, or changes its declaration, and creates its first key. Nodes
(node-reporter) and Prometheus authenticate with the key when they push. The key works for
this cluster only. An admin or operator of the workspace signs the registration.

The key is shown only once. The log keeps an HMAC of it, from which it cannot be recovered.
If "quartermaster apply" already declared the cluster, the name is enough. A cluster that has a
valid key keeps it: then register changes only the fields that are given.

--scope says what the key is for: push (events), receive (commands for the cluster), or both. A
cluster may have a key of its own for each.

--shards divides the telemetry and the hardware events of a large cluster by node, so that
several cores fold them. It may be changed at any time. Nodes follow within a minute.

With --gateway, register also prints the remote_write stanza for the cluster's Prometheus.
The stanza sends the metrics of dcgm-exporter, vLLM, SGLang, TGI and kube-state-metrics, and
nothing else.`,
		Example: "  quartermaster cluster register lab --provider aws --class hyperscaler --region us-east-1 --key-file lab.key\n" +
			"  quartermaster cluster register train-eu --workspace research -o json\n" +
			"  quartermaster cluster register lab --shards 64",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("shards") && (reg.Shards < 1 || reg.Shards > domain.MaxShards) {
				return commandline.Usagef("--shards %d: want 1 to %d", reg.Shards, domain.MaxShards)
			}
			reg.ProviderClass = domain.ProviderClass(class)
			stanza, err := stanzaFor(args[0], gateway, scrape)
			if err != nil {
				return err
			}
			return a.registerCluster(cmd.Context(), args[0], workspace, &reg, stanza, &flags)
		},
	}
	f := cmd.Flags()
	f.StringVar(&workspace, "workspace", "", "workspace that owns the cluster (default platform)")
	f.StringVar(&reg.Provider, "provider", "", "supplier, for example aws")
	f.StringVar(&class, "class", "", "hyperscaler, neocloud, reseller or owned")
	f.StringVar(&reg.Region, "region", "", "region of the cluster")
	f.StringVar(&reg.BillingAccount, "account", "", "billing account")
	f.StringSliceVar(&reg.Certifications, "certification", nil, "certification of the cluster; repeatable")
	f.StringVar(&reg.Name, "title", "", "display name")
	f.Uint32Var(&reg.Shards, "shards", 0,
		fmt.Sprintf("shards of a large cluster, 1 to %d (default unchanged, 1 for a new cluster)", domain.MaxShards))
	f.StringVar(&gateway, "gateway", "", "address of the gateway for Prometheus, for example https://quartermaster.example:7443")
	f.DurationVar(&scrape, "scrape-interval", 0, "scrape_interval of that Prometheus (default 30s)")
	flags.on(cmd, "what the key is for: push, receive, or both; repeatable (default push)")
	return cmd
}

// stanzaFor returns the remote_write stanza for a cluster's Prometheus, "" without a gateway.
func stanzaFor(cluster, gateway string, scrape time.Duration) (string, error) {
	if gateway == "" {
		return "", nil
	}
	u, err := url.Parse(gateway)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return "", commandline.Usagef("--gateway %.100q: want an address such as https://quartermaster.example:7443", gateway)
	}
	if scrape < 0 || scrape > time.Hour {
		return "", commandline.Usagef("--scrape-interval %s: want more than 0 and at most 1h", scrape)
	}
	return remotewrite.Stanza(cluster, u.JoinPath("/api/v1/write").String(), "/etc/prometheus/quartermaster.key", scrape), nil
}

func (a *Program) registerCluster(ctx context.Context, name, workspace string, reg *domain.ClusterRegistered, stanza string, flags *newKeyFlags) error {
	if err := errors.Join(a.NotDemo(), flags.check()); err != nil {
		return err
	}
	s, err := a.signer(ctx, flags.operator) // makes the first operator
	if err != nil {
		return err
	}
	key, draft, err := a.caller().RegisterCluster(ctx, &app.ClusterRegistration{Name: name, Workspace: workspace, ClusterRegistered: *reg, Expires: flags.end(app.Now()), Scopes: flags.scopes})
	if err != nil {
		return err
	}
	return a.issue(ctx, s, draft, key, stanza, flags.file)
}

// issue has a new key decided, and prints it or writes it to a file. The file is written first,
// because a key that is only in the log is useless. There is no key if a changed cluster keeps its
// own.
func (a *Program) issue(ctx context.Context, s signer, draft app.Draft, key *app.NewKey, stanza, file string) error {
	ans := keyAnswer{
		Cluster: key.Cluster, Workspace: key.Workspace, Registered: key.Registered, Shards: key.Shards, KeyID: key.Key.ID,
		Prometheus: stanza, Scopes: key.Scopes, Expires: key.Expires, Previous: key.Previous, PreviousUntil: key.PreviousUntil,
	}
	switch {
	case ans.KeyID == "":
		file, ans.Expires, ans.Scopes = "", 0, nil
	case file != "":
		if err := writeNew(file, key.Key.String()+"\n"); err != nil {
			return fmt.Errorf("--key-file: %w", err)
		}
		ans.KeyFile = file
	default:
		ans.Key = key.Key.String()
	}
	if err := a.decide(ctx, s, draft); err != nil {
		if file != "" {
			err = errors.Join(err, os.Remove(file))
		}
		return err
	}
	if a.json {
		return a.answerJSON(ans)
	}
	if ans.Registered {
		shards := ""
		if ans.Shards > 1 {
			shards = fmt.Sprintf(", with %d shards", ans.Shards)
		}
		fmt.Fprintf(a.out, "cluster %s is registered in workspace %s%s\n", ans.Cluster, ans.Workspace, shards)
	}
	switch {
	case ans.KeyID == "":
		fmt.Fprintf(a.out, "it keeps its key; \"quartermaster key rotate %s\" makes another\n", ans.Cluster)
	case file != "":
		fmt.Fprintf(a.out, "its key %s is in %s\n", ans.KeyID, file)
	default:
		fmt.Fprintf(a.out, "its key %s, shown only once:\n\n  %s\n\n", ans.KeyID, ans.Key)
	}
	if ans.Prometheus != "" {
		fmt.Fprintf(a.out, "\nremote_write for its Prometheus, which reads the key from a file:\n\n%s\n", ans.Prometheus)
	}
	if ans.Expires != 0 {
		fmt.Fprintf(a.out, "it expires at %s\n", ans.Expires)
	}
	if ans.Previous != "" {
		fmt.Fprintf(a.out, "key %s is valid until %s: give the new one to nodes and Prometheus before then\n", ans.Previous, ans.PreviousUntil)
	}
	return nil
}

// writeNew writes a new file that only its owner can read.
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

func (a *Program) clusterListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List clusters and their keys",
		Long:    `List shows every cluster and all its keys, past ones included.`,
		Example: "  quartermaster cluster list\n  quartermaster cluster list -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ans, err := a.caller().Clusters(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			t := a.table("cluster", "workspace", "provider", "region", "nodes", "shards", "key", "valid")
			for _, c := range ans.Clusters {
				first := true
				row := func(key, holds string) {
					if first {
						t.AppendRow([]any{c.Cluster, c.Workspace, c.Provider, c.Region, c.Nodes, c.Shards, key, holds})
					} else {
						t.AppendRow([]any{"", "", "", "", "", "", key, holds})
					}
					first = false
				}
				for _, k := range c.Keys {
					name := k.KeyID
					if !slices.Equal(k.Scopes, []string{domain.KeyPush}) {
						name += " (" + strings.Join(k.Scopes, ", ") + ")"
					}
					switch {
					case !k.Live:
						row(name, fmt.Sprintf("no, since %s: %s", k.Until, k.Why))
					case k.Until != 0:
						row(name, fmt.Sprintf("until %s: %s", k.Until, k.Why))
					default:
						row(name, "yes")
					}
				}
				if first {
					row("none", "")
				}
			}
			t.Render()
			return nil
		},
	}
	return cmd
}

func (a *Program) keyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "key", Short: "Rotate and revoke the keys that clusters push events with"}
	cmd.AddCommand(a.keyRotateCommand(), a.keyRevokeCommand())
	return cmd
}

func (a *Program) keyRotateCommand() *cobra.Command {
	var (
		overlap time.Duration
		flags   newKeyFlags
	)
	cmd := &cobra.Command{
		Use:   "rotate CLUSTER",
		Short: "Create a new key for a cluster; the previous one stays valid for a while",
		Long: `Rotate creates a new key. The previous key stays valid for --overlap, so that you can give
the new key to nodes and Prometheus one at a time. After that only the new key is valid. The new
key has the scopes of the previous one. Of a cluster with several keys, --scope says which. An
admin or operator of the cluster's workspace signs the rotation.`,
		Example: "  quartermaster key rotate lab --overlap 48h --key-file lab.key.new",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(a.NotDemo(), flags.check()); err != nil {
				return err
			}
			s, err := a.signer(cmd.Context(), flags.operator)
			if err != nil {
				return err
			}
			key, draft, err := a.caller().RotateKey(cmd.Context(), args[0], flags.scopes, domain.Instant(overlap), flags.end(app.Now()))
			if err != nil {
				return err
			}
			return a.issue(cmd.Context(), s, draft, key, "", flags.file)
		},
	}
	cmd.Flags().DurationVar(&overlap, "overlap", 24*time.Hour, "how long the previous key stays valid")
	flags.on(cmd, "rotate the key that is for this: push or receive; repeatable (default: the only key)")
	return cmd
}

func (a *Program) keyRevokeCommand() *cobra.Command {
	var reason, operator string
	cmd := &cobra.Command{
		Use:   "revoke KEY-ID",
		Short: "Revoke a key at once",
		Long: `Revoke ends a key: within five seconds it is refused. Events that were pushed with it stay.
An admin or operator of the cluster's workspace signs the revocation.`,
		Example: "  quartermaster key revoke k7ymqv3x2a --reason \"laptop lost\"",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.NotDemo(); err != nil {
				return err
			}
			if err := a.caller().Begin(cmd.Context(), false); err != nil {
				return err
			}
			ans, draft, err := a.caller().RevokeKey(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			s, err := a.signer(cmd.Context(), operator)
			if err != nil {
				return err
			}
			if err := a.decide(cmd.Context(), s, draft); err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			fmt.Fprintf(a.out, "key %s of cluster %s is revoked\n", ans.KeyID, ans.Cluster)
			if ans.KeysLeft == 0 {
				fmt.Fprintf(a.out, "the cluster has no key left: \"quartermaster cluster register %s\" makes one\n", ans.Cluster)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason, kept in the log")
	keyFlag(cmd, &operator)
	return cmd
}
