package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/configfile"
	"quartermaster/adapters/podresources"
	"quartermaster/adapters/transport"
	"quartermaster/domain"
)

// errNotReady ends a check that found a failure. The findings are already printed.
var errNotReady = errors.New("something is missing")

// The results of a check.
const (
	resultOK      = "ok"
	resultWarning = "warning" // works, but somebody should know
	resultFailed  = "failed"
	resultSkipped = "skipped"
)

// finding is the result of one check.
type finding struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Found  string `json:"found"`
	Next   string `json:"next,omitempty"` // what to do
}

func (a *app) checkCommand() *cobra.Command {
	var offline bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Report what is missing on this node, and what to do about it",
		Long: `Check tests everything that run needs, and changes nothing: the configuration, the
spool's directory and its disk, the collector with DCGM, the driver and the GPUs, the
kubelet's socket and other sources of GPU holders, the key and the gateway that accepts
it, and the clock. It can run beside a running reporter.

It prints one line a check: ok, WARNING, FAILED or skipped, what was found, and what to
do next. The exit code is 1 if any check failed. --offline does not contact the gateway
(or Kafka, if it is configured).

JSON keys: ok, checks (check, result: ok, warning, failed or skipped, found, next).`,
		Example: "  node-reporter check --config /etc/node-reporter/node-reporter.yaml\n" +
			"  node-reporter check --config node-reporter.yaml --offline -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := check(cmd.Context(), a.path, offline)
			ok := !slices.ContainsFunc(found, func(f finding) bool { return f.Result == resultFailed })
			if a.asJSON() {
				if err := commandline.WriteJSON(a.out, map[string]any{"ok": ok, "checks": found}); err != nil {
					return err
				}
			} else {
				label := map[string]string{
					resultOK: "ok", resultWarning: "WARNING", resultFailed: "FAILED", resultSkipped: "skipped",
				}
				for _, f := range found {
					fmt.Fprintf(a.out, "%-8s %s: %s\n", label[f.Result], f.Check, f.Found)
					if f.Next != "" {
						fmt.Fprintf(a.out, "         -> %s\n", f.Next)
					}
				}
			}
			if !ok {
				return errNotReady
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "do not contact the gateway or Kafka")
	return cmd
}

func check(ctx context.Context, path string, offline bool) []finding {
	cfg, err := readConfig(path, os.Getenv)
	if err != nil {
		var out []finding
		for _, e := range configfile.Joined(err) {
			out = append(out, finding{
				"configuration", resultFailed, e.Error(), `fix it; "node-reporter config example" explains every field`,
			})
		}
		return out
	}
	out := []finding{{"configuration", resultOK, fmt.Sprintf("node %s of cluster %s", cfg.Node, cfg.Cluster), ""}}
	out = append(out, checkSpool(cfg))
	out = append(out, checkWaiting(cfg)...)
	out = append(out, checkCollector(ctx, cfg)...)
	out = append(out, checkHolders(ctx, cfg)...)
	out = append(out, checkRegister(cfg))
	secrets := checkSecrets(cfg)
	out = append(out, secrets...)
	out = append(out, checkCertificate(cfg, time.Now())...)
	clk := newClock()
	switch {
	case offline:
	case slices.ContainsFunc(secrets, func(f finding) bool { return f.Result == resultFailed }):
		out = append(out, finding{delivers(cfg), resultSkipped, "not asked, because its secret cannot be used", ""})
	default:
		out = append(out, checkDelivery(ctx, cfg, clk))
	}
	return append(out, checkClock(clk))
}

// checkSpool tries to write to the spool's directory, and checks the free space.
func checkSpool(cfg *Config) finding {
	f := finding{Check: "spool"}
	dir := cfg.Spool.Dir
	probe := filepath.Join(dir, ".check")
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.WriteFile(probe, []byte("node-reporter check"), 0o600)
		_ = os.Remove(probe)
	}
	switch {
	case errors.Is(err, syscall.EROFS):
		f.Result, f.Found = resultFailed, err.Error()
		f.Next = "its file system is read-only: mount it writable, or set spool.dir to another directory"
	case errors.Is(err, os.ErrPermission):
		f.Result, f.Found = resultFailed, err.Error()
		f.Next = fmt.Sprintf("chown %s to user %d, who runs this program", dir, os.Getuid())
	case errors.Is(err, syscall.ENOSPC):
		f.Result, f.Found, f.Next = resultFailed, err.Error(), "free space on its disk"
	case err != nil:
		f.Result, f.Found, f.Next = resultFailed, err.Error(), "set spool.dir to a directory that this program can write"
	}
	if err != nil {
		return f
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err == nil {
		free := int64(st.Bavail) * int64(st.Bsize) >> 20 //nolint:unconvert // the type differs between platforms
		f.Found = fmt.Sprintf("%s can be written, %d MiB are free, the quota is %d MiB", dir, free, cfg.Spool.QuotaMiB)
		if free < int64(cfg.Spool.QuotaMiB) {
			f.Result, f.Next = resultWarning, "free space, or set spool.quota_mib lower: samples are dropped when the disk is full"
			return f
		}
		const tmpfs = 0x01021994
		if int64(st.Type) == tmpfs { //nolint:unconvert // the type differs between platforms
			f.Result, f.Next = resultWarning, "it is in memory, so waiting events are lost at a reboot: set spool.dir to a disk"
			return f
		}
	}
	f.Result = resultOK
	return f
}

// checkCollector asks the collector what works.
func checkCollector(ctx context.Context, cfg *Config) []finding {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, cfg.Collector.Command, "check", "-o", "json",
		"--engine", cfg.Collector.Engine, fmt.Sprintf("--profiling=%t", cfg.Collector.Profiling))
	cmd.WaitDelay = 2 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	f := finding{Check: "collector", Result: resultFailed}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		f.Found, f.Next = err.Error(), "install dcgm-collector beside this program, or set collector.command to where it is"
		return []finding{f}
	}
	if ctx.Err() != nil {
		f.Found, f.Next = "it does not answer within a minute", "the driver may hang: look at dmesg for NVRM, and at nvidia-smi"
		return []finding{f}
	}
	var r struct {
		OK      bool   `json:"ok"`
		Text    string `json:"text"`
		Library string `json:"library"`
		Driver  string `json:"driver"`
		Engine  string `json:"engine"`
		Tried   []struct {
			Engine string `json:"engine"`
			Result string `json:"result"`
			Reason string `json:"reason"`
		} `json:"tried"`
		Devices []struct {
			UUID string `json:"uuid"`
			Lost bool   `json:"lost"`
		} `json:"devices"`
		Groups []struct {
			Name   string `json:"name"`
			Works  bool   `json:"works"`
			Reason string `json:"reason"`
		} `json:"groups"`
	}
	if jerr := json.Unmarshal(out, &r); jerr != nil {
		f.Found = fmt.Sprintf("its output cannot be read (%v): %s", err, printable(stderr.String(), 300))
		f.Next = "run dcgm-collector check; a process that ends with 127 lacks a function of libdcgm.so.4"
		return []finding{f}
	}
	if !r.OK {
		f.Found, f.Next = r.Text, "dcgm-collector check says more"
		return []finding{f}
	}
	f.Result, f.Found = resultOK, fmt.Sprintf("DCGM %s, driver %s, engine %s, %d devices",
		r.Library, r.Driver, r.Engine, len(r.Devices))
	all := []finding{f}
	for _, e := range r.Tried {
		text := e.Result
		if e.Reason != "" {
			text += ", " + e.Reason
		}
		f := finding{"engine " + e.Engine, resultOK, text, ""}
		if e.Engine != r.Engine && e.Result != "absent" {
			f.Result = resultWarning
			f.Next = "two engines on one node contend for the profiling counters: " +
				"fix this one, or name one in collector.engine"
		} else if e.Engine == r.Engine && e.Reason != "" {
			f.Result = resultWarning
		}
		all = append(all, f)
	}
	for _, d := range r.Devices {
		if d.Lost {
			all = append(all, finding{
				"gpu " + d.UUID, resultWarning,
				"the driver can no longer reach it", "reboot the node; replace the GPU if this happens again",
			})
		}
	}
	for _, g := range r.Groups {
		if !g.Works {
			all = append(all, finding{
				"fields " + g.Name, resultWarning, "not read: " + g.Reason, "these values are blank in samples",
			})
		}
	}
	return all
}

// checkRegister warns if the node may not be registered. An unregistered node counts nowhere.
func checkRegister(cfg *Config) finding {
	if cfg.Register.Enabled {
		return finding{"register", resultOK, "the node registers itself with its GPUs", ""}
	}
	return finding{
		"register", resultWarning,
		"register.enabled is off: the node counts nowhere unless it is registered in another way",
		`set register.enabled to true, or declare the node with "quartermaster apply" or an import`,
	}
}

// checkHolders asks each source for the holders of GPUs.
func checkHolders(ctx context.Context, cfg *Config) (out []finding) {
	at := cfg.Attribution
	if !at.Kubernetes.Enabled && at.Slurm == (SlurmConfig{}) && at.Static == "" {
		return []finding{{
			"holders", resultWarning, "no source of GPU holders is configured, so all GPUs count as idle",
			"enable attribution.kubernetes, or set attribution.slurm or attribution.static",
		}}
	}
	a := newAttributor(cfg, slog.New(slog.DiscardHandler))
	if at.Kubernetes.Enabled {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		held, err := a.kubelet.List(ctx)
		cancel()
		if err != nil {
			out = append(out, finding{
				"kubelet", resultFailed, err.Error(),
				"see deploy/node for how to give a user that is not root access to its socket",
			})
		} else {
			known := 0
			for _, h := range held {
				if _, err := podresources.ParseDevice(h.ID); err == nil {
					known++
				}
			}
			f := finding{"kubelet", resultOK, fmt.Sprintf("pods hold %d devices", len(held)), ""}
			if known < len(held) {
				f.Result = resultWarning
				f.Next = fmt.Sprintf("%d of them have unknown ids, and count as idle: "+
					"set the device plugin's deviceIDStrategy to uuid", len(held)-known)
			}
			out = append(out, f)
		}
		if a.labels != nil {
			f := finding{"labels", resultOK, "", ""}
			if pods, err := a.labels.Pods(ctx); err != nil {
				f.Result, f.Found, f.Next = resultFailed, err.Error(), "or set attribution.kubernetes.labels to false"
			} else {
				f.Found = fmt.Sprintf("labels of %d pods", len(pods))
			}
			out = append(out, f)
		}
	}
	if at.Slurm.JobDir != "" || at.Slurm.Processes {
		f := finding{"slurm", resultOK, "", ""}
		claims, err := jobs(at.Slurm)
		f.Found = fmt.Sprintf("jobs hold %d devices", len(claims))
		if err != nil {
			f.Result, f.Found, f.Next = resultFailed, err.Error(), "let the prolog write the directory: deploy/node/slurm-prolog.sh"
		}
		out = append(out, f)
	}
	if at.Static != "" {
		f := finding{"static file", resultOK, "", ""}
		claims, err := a.static.read()
		f.Found = fmt.Sprintf("%d lines name holders", len(claims))
		if err != nil {
			f.Result, f.Found, f.Next = resultFailed, err.Error(), "fix the file; valid lines are used all the same"
		}
		out = append(out, f)
	}
	return out
}

// secretAdvice says what to do about an invalid file with a secret.
var secretAdvice = map[string]string{
	"gateway.client_key_file": "write the private key of gateway.client_cert_file into it, in PEM",
	"gateway.key_file": `"quartermaster cluster register" shows the cluster's key once; ` +
		`"quartermaster key rotate" makes another`,
	"kafka.password_file": "write the password of kafka.user into it, as the brokers know it",
	"kafka.key_file":      "write the private key of kafka.cert_file into it, in PEM",
}

// delivers names the destination of events.
func delivers(cfg *Config) string {
	if len(cfg.Kafka.Brokers) > 0 {
		return "kafka"
	}
	return "gateway"
}

// checkSecrets opens the files with the secrets for the destination of events.
func checkSecrets(cfg *Config) (out []finding) {
	secrets := cfg.secrets()
	for _, field := range slices.Sorted(maps.Keys(secrets)) {
		if !strings.HasPrefix(field, delivers(cfg)+".") {
			continue
		}
		f := finding{"secret " + field, resultOK, secrets[field], ""}
		text, err := configfile.Secret(f.Found)
		if err == nil && field == "gateway.key_file" {
			_, err = domain.ParseClusterKey(text)
		}
		if err != nil {
			f.Result, f.Found, f.Next = resultFailed, err.Error(), secretAdvice[field]
		}
		out = append(out, f)
	}
	return out
}

// checkCertificate checks the certificate that is shown to the gateway.
func checkCertificate(cfg *Config, now time.Time) []finding {
	file := cfg.Gateway.ClientCertFile
	if file == "" {
		return nil
	}
	f := finding{Check: "client certificate", Next: "renew it: both files are read again when they change"}
	cert := transport.NewCertificate(file, cfg.Gateway.ClientKeyFile, slog.New(slog.DiscardHandler))
	switch ends, warning, err := cert.Validity(now); {
	case ends.IsZero():
		f.Result, f.Found = resultFailed, err.Error()
		f.Next = "write a certificate and its key in PEM into gateway.client_cert_file and gateway.client_key_file"
	case err != nil:
		f.Result, f.Found = resultFailed, err.Error()
	case warning != "":
		f.Result, f.Found = resultWarning, warning
	default:
		f.Result, f.Found, f.Next = resultOK, "ends at "+ends.Format(time.RFC3339), ""
	}
	return []finding{f}
}

// checkDelivery asks the gateway for the cluster of the key, or asks Kafka whether it answers.
func checkDelivery(ctx context.Context, cfg *Config, clk *clock) finding {
	f := finding{Check: delivers(cfg), Result: resultFailed}
	to, err := newSender(cfg, clk, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Found, f.Next = err.Error(), "fix the configuration"
		return f
	}
	defer to.close()
	ctx, cancel := context.WithTimeout(ctx, cfg.Gateway.Timeout)
	defer cancel()
	switch to := to.(type) {
	case *direct:
		checkKafka(ctx, to, &f)
	case *gateway:
		checkGateway(ctx, cfg, to, &f)
	}
	return f
}

func checkKafka(ctx context.Context, to *direct, f *finding) {
	if _, err := to.open(ctx); err != nil {
		f.Found = err.Error()
		f.Next = "are the addresses, the certificates and the password right, and may this node reach the brokers?"
		return
	}
	f.Result, f.Found = resultWarning, "the brokers answer"
	f.Next = "these credentials can write facts of every cluster: use the gateway unless all nodes are trusted"
}

// checkGateway sends an empty batch. The answer names the cluster of the key.
func checkGateway(ctx context.Context, cfg *Config, to *gateway, f *finding) {
	answer, err := to.ask(ctx, nil)
	var of struct {
		Cluster string `json:"cluster"`
	}
	if err == nil {
		if _, _, err = readAccepted(answer, 0); err == nil {
			err = json.Unmarshal(answer, &of)
		}
	}
	var e *sendError
	switch errors.As(err, &e); {
	case err == nil && of.Cluster == cfg.Cluster:
		f.Result = resultOK
		f.Found = fmt.Sprintf("%s answers and accepts the key, which belongs to cluster %s", cfg.Gateway.URL, cfg.Cluster)
	case err == nil && of.Cluster != "":
		f.Found = fmt.Sprintf("%s accepts the key, which belongs to cluster %s, but this node is configured for cluster %s: "+
			"none of its events would be accepted", cfg.Gateway.URL, printable(of.Cluster, 100), cfg.Cluster)
		f.Next = fmt.Sprintf("write the key of cluster %s into %s, or correct cluster in the configuration",
			cfg.Cluster, cfg.Gateway.KeyFile)
	case err == nil, e != nil && e.final:
		f.Result = resultWarning
		f.Found = cfg.Gateway.URL + " answers and accepts the key, but does not say which cluster the key belongs to"
		f.Next = "\"quartermaster serve\" is older than this program: update both to the same version"
	case e != nil && e.kind == noCertificate:
		f.Found = e.text
		f.Next = "set gateway.client_cert_file and gateway.client_key_file to a client certificate, and its key, " +
			"of an authority in the gateway's client_ca_file"
	case e != nil && e.login:
		f.Found, f.Next = e.text, `is it the key of this cluster, and still valid? "quartermaster key rotate" makes another`
	case strings.Contains(err.Error(), "x509: certificate signed by unknown authority"),
		strings.Contains(err.Error(), "x509: certificate is not trusted"):
		f.Found = err.Error()
		f.Next = "set gateway.ca_file to the certificate of the authority that signed the gateway's, in PEM"
	default:
		f.Found, f.Next = err.Error(), "is the address right, does \"quartermaster serve\" run, and may this node reach it?"
	}
}

func checkClock(clk *clock) finding {
	f := finding{Check: "clock", Result: resultOK}
	bound := clk.bound()
	_, synced := clk.kernelKnows()
	f.Found = fmt.Sprintf("off by %s at most", bound.Round(time.Millisecond))
	switch {
	case bound == 0:
		f.Result, f.Found = resultWarning, "its error is unknown"
		f.Next = "let chrony or systemd-timesyncd synchronize it"
	case bound > 5*time.Second:
		f.Result, f.Next = resultFailed, "set it, and let chrony or systemd-timesyncd synchronize it: hours are billed by it"
	case !synced:
		f.Result, f.Next = resultWarning, "nothing synchronizes it: let chrony or systemd-timesyncd do so"
	}
	return f
}
