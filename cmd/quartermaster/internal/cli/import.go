package cli

import (
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/importer"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

type importFlags struct {
	opts   importer.Options
	epoch  string
	strict bool
}

func (a *Program) importCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Append facts from files to the log",
		Long: `Import reads files in their publishers' own columns and appends their facts as events. A file is
a source, named by its SHA-256. Importing it again, or continuing after a crash, adds nothing
twice. Bad rows are reported with file, line and field, and the other rows are imported. A
damaged or truncated gzip file is rejected as a whole.`,
	}
	kinds := []struct {
		kind                  importer.Kind
		short, columns, usage string
	}{
		{importer.Nodes, "machines and their GPUs", `Columns: sn, cpu_milli, memory_mib, gpu, model (the openb trace). Optional: uuids (separated
by ;), zone, sku, resource_id, billing_model, provider, billing_account, fabric_domain,
in_service_from.`,
			"  quartermaster import nodes openb_node_list_gpu_node.csv --cluster openb --epoch 2023-01-01"},
		{importer.Pods, "workloads, as deployments", `Columns: name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec, qos,
pod_phase, creation_time, deletion_time, scheduled_time (the openb trace).
Times are seconds from --epoch.`,
			"  quartermaster import pods openb_pod_list_default.csv --cluster openb --workspace research --epoch 2023-01-01"},
		{importer.Usage, "GPUs running and pending per hour, as demand and as samples of nodes", `Columns: hour, vc, total_gpu, running_gpu_mean, running_gpu_max, pending_gpu_mean,
pending_gpu_max (Helios, hourly). The GPUs of a virtual cluster are laid out as nodes VC-000,
VC-001 and so on. The hourly mean of running GPUs becomes one sample per node and interval,
lowest nodes first. Optional: running_sm_active (percent) and running_memory_mib of the running
GPUs, first to last, separated by ;. A blank value means not measured.`,
			"  quartermaster import usage earth_vc_hourly.csv.gz --cluster earth --zone Asia/Shanghai --gpu-model V100"},
		{importer.Demand, "hourly demand by pool", `Columns: hour (or timestamp, usage_hour), pool (or region, region_num), model (or
instance_type), demand (or count, norm_usage). Optional: unit.`,
			"  quartermaster import demand shavedice_regions_1_2.csv.gz --cluster demand --zone UTC"},
		{importer.Prices, "dated offers of suppliers", `Columns: provider, region, instance_type, gpu_model, gpu_count, gpu_memory,
vcpu, memory, offer, term_months, upfront, hourly, effective_hourly, currency,
as_of, source.`,
			"  quartermaster import prices gpu_offers.csv"},
		{importer.Energy, "readings of power meters", `Columns: meter, from, to, kwh for the energy of each interval; or meter, time, kwh_total for the
counter of each meter, whose differences count. Optional: nodes (the machines behind the meter,
separated by ;). A meter without nodes is of all machines of the cluster. An interval has at most
31 days. "costs owned" bills owned hardware by them.`,
			"  quartermaster import energy pdu-2026-05.csv --cluster lab"},
	}
	for _, k := range kinds {
		var fl importFlags
		sub := &cobra.Command{
			Use:     string(k.kind) + " FILE...",
			Short:   "Import " + k.short,
			Long:    "Import " + k.short + ".\n\n" + k.columns,
			Example: k.usage,
			Args:    cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, files []string) error {
				opts, err := fl.options()
				if err != nil {
					return err
				}
				return a.importFiles(func(done func(*app.Imported) error) error {
					return a.caller().ImportColumns(cmd.Context(), k.kind, opts, files, fl.strict, done)
				})
			},
		}
		f := sub.Flags()
		f.BoolVar(&fl.strict, "strict", false, "reject a file if any row is bad")
		if k.kind != importer.Prices {
			f.StringVar(&fl.opts.Cluster, "cluster", "", "cluster of the file (required)")
			must(sub.MarkFlagRequired("cluster"))
		}
		f.DurationVar(&fl.opts.Shift, "shift", 0, "shift all times by this duration, which becomes part of the source's name")
		f.BoolVar(&fl.opts.Historical, "historical", false, "declare that every fact was known when it became true, so that backtests can use it")
		switch k.kind {
		case importer.Nodes, importer.Usage, importer.Demand, importer.Energy:
			f.StringVar(&fl.opts.Zone, "zone", "", "time zone of times without one, for example UTC or Asia/Shanghai")
		}
		switch k.kind {
		case importer.Nodes:
			f.StringVar(&fl.epoch, "epoch", "", "time from which nodes without in_service_from are in service")
		case importer.Pods:
			f.StringVar(&fl.opts.Workspace, "workspace", "", "workspace of the workloads (required)")
			must(sub.MarkFlagRequired("workspace"))
			f.StringVar(&fl.epoch, "epoch", "", "time of second 0 of the file (required)")
			must(sub.MarkFlagRequired("epoch"))
			f.BoolVar(&fl.opts.Standing, "standing", false, "treat the file as a constant mix from --epoch on, and ignore its times")
		case importer.Demand:
			f.StringToStringVar(&fl.opts.Regions, "region-of", nil, "region names, as 1=us-east-1")
			f.StringToStringVar(&fl.opts.Models, "model-of", nil, "names of models or machine types, as A=p4d.24xlarge")
		case importer.Usage:
			f.StringVar(&fl.opts.SKU, "sku", "", "instance type of the nodes, as bills name it")
			f.StringVar(&fl.opts.Account, "account", "", "billing account of the nodes")
			f.Uint64Var(&fl.opts.CPUMilli, "node-cpu-milli", 0, "thousandths of a CPU in a full node")
			f.Uint64Var(&fl.opts.MemoryMiB, "node-memory-mib", 0, "memory of a full node")
			f.StringVar(&fl.opts.GPUModel, "gpu-model", "", "GPU model of the nodes (required)")
			must(sub.MarkFlagRequired("gpu-model"))
			f.IntVar(&fl.opts.NodeGPUs, "node-gpus", 8, "GPUs in a node")
			f.DurationVar(&fl.opts.Interval, "interval", 10*time.Minute, "length of a sample; a divisor of one hour")
			f.StringToStringVar(&fl.opts.Workspaces, "workspace-of", nil, "workspaces of virtual clusters, as VC=WORKSPACE (default the virtual cluster's name)")
		}
		cmd.AddCommand(sub)
	}
	cmd.AddCommand(a.importFocusCommand(), a.importBillCommand(), a.importListCommand(), a.importShowCommand())
	return cmd
}

// must panics on errors that only a bug in this program can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (fl *importFlags) options() (importer.Options, error) {
	opts := fl.opts
	if fl.epoch != "" {
		t, err := domain.ParseTime(fl.epoch)
		if err != nil {
			return opts, commandline.Usagef("--epoch: %w", err)
		}
		opts.Epoch = t
	}
	return opts, nil
}

// importFiles runs an import and reports each file.
func (a *Program) importFiles(imported func(done func(*app.Imported) error) error) error {
	if err := a.NotDemo(); err != nil {
		return err
	}
	bad := false
	err := imported(func(ans *app.Imported) error {
		bad = bad || ans.BadRows > 0
		return a.showImport(ans)
	})
	if err == nil && bad {
		return &failed{why: "some rows are bad"}
	}
	return err
}

// showContracts lists where a file of Contract Commitment differs from the log.
func (a *Program) showContracts(c *app.ContractsCompared) error {
	if len(c.Differences) == 0 {
		return nil
	}
	t := a.table("commitment", "column", "file", "log")
	for i, d := range c.Differences {
		if i == shownRows {
			defer fmt.Fprintf(a.out, "and %s more; see -o json\n", comma(len(c.Differences)-shownRows))
			break
		}
		t.AppendRow(table.Row{d.Commitment, d.Column, d.File, d.Log})
	}
	t.Render()
	return nil
}

func (a *Program) showImport(ans *app.Imported) error {
	if a.json {
		return a.jsonLine(ans)
	}
	for _, b := range ans.Bad {
		fmt.Fprintln(a.err, b)
	}
	if n := ans.BadRows - len(ans.Bad); n > 0 {
		fmt.Fprintf(a.err, "%s: %s more bad rows\n", ans.File, comma(n))
	}
	for _, w := range ans.Warnings {
		value := ""
		if w.Value != "" {
			value = fmt.Sprintf(" %q", w.Value)
		}
		fmt.Fprintf(a.err, "%s:%d: %s%s (%s rows)\n", ans.File, w.Line, w.Reason, value, comma(w.Rows))
	}
	for i, r := range ans.Rounded {
		if i == shownRows {
			fmt.Fprintf(a.err, "%s: and %s more; see -o json\n", ans.File, comma(len(ans.Rounded)-shownRows))
			break
		}
		fmt.Fprintf(a.err, "%s: %s of %s, account %s: rounding to 18 decimals took %s %s of the billed cost and %s of the effective cost (%s lines)\n", ans.File,
			invoiceText(r.Invoice, r.Period), clipped(r.Issuer), clipped(r.Account), r.Billed, r.Currency, r.Effective, comma(r.Lines))
	}
	if ans.Refused {
		fmt.Fprintf(a.out, "%s: file rejected, %s of %s rows are bad\n", ans.File, comma(ans.BadRows), comma(ans.Rows))
		return nil
	}
	if s := ans.Snapshot; s != nil {
		fmt.Fprintf(a.out, "%s/%s: %s rows: %s added, %s changed, %s removed, %s unchanged; %s lines, %s before\n",
			s.Account, s.Month.From.Time().Format("2006-01"), comma(ans.Rows), comma(s.Added), comma(s.Changed), comma(s.Removed),
			comma(s.Unchanged), comma(s.Lines), comma(s.Before))
		return nil
	}
	if c := ans.Contracts; c != nil {
		fmt.Fprintf(a.out, "%s: %s commitments, %s bad rows: %s in the log, %s of them the same; %s differences\n", ans.File,
			comma(ans.Rows-ans.BadRows), comma(ans.BadRows), comma(c.Compared), comma(c.Same), comma(len(c.Differences)))
		return a.showContracts(c)
	}
	if s := ans.Stated; s != nil {
		fmt.Fprintf(a.out, "%s: %s rows, %s events: %s new, %s changed, %s known already, %s bad rows\n", ans.File,
			comma(ans.Rows), comma(ans.Events), comma(s.New), comma(s.Changed), comma(s.Unchanged+ans.Known), comma(ans.BadRows))
		return nil
	}
	fmt.Fprintf(a.out, "%s: %s rows, %s events: %s appended, %s known already, %s bad rows\n", ans.File,
		comma(ans.Rows), comma(ans.Events), comma(ans.Appended), comma(ans.Known), comma(ans.BadRows))
	return nil
}
