package main

import (
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"quartermaster/adapters/configfile"
	"quartermaster/adapters/dcgm"
	"quartermaster/domain"
)

// Config is the file of a node. Every field but attribution.rules can be set in the
// environment instead, as NODE_REPORTER_ and the path of its key in capitals:
// NODE_REPORTER_GATEWAY_KEY_FILE. Secrets stand in files of their own, open to their
// owner alone; a path in the file counts from the file's directory.
//
// The tag default is what a field has that is given nowhere. deploy/node/node-reporter.yaml
// is the manual for operators, of the same content as the comments here.
type Config struct {
	// Cluster is the one that this node is of, as it is registered.
	Cluster string `yaml:"cluster"`
	// Node is the node's name in the fleet; the host's name when empty. In Kubernetes
	// give it spec.nodeName.
	Node string `yaml:"node"`
	// Interval is the time that one sample covers: 1s to 5m.
	Interval time.Duration `yaml:"interval" default:"10s"`

	Gateway     GatewayConfig     `yaml:"gateway"`
	Kafka       KafkaConfig       `yaml:"kafka"`
	Spool       SpoolConfig       `yaml:"spool"`
	Collector   CollectorConfig   `yaml:"collector"`
	Attribution AttributionConfig `yaml:"attribution"`
	Register    RegisterConfig    `yaml:"register"`

	// Listen is the address of /metrics and /healthz; none when "off".
	Listen string `yaml:"listen" default:"127.0.0.1:9475"`

	file *configfile.File
}

// GatewayConfig says where events go: to "quartermaster serve", with the cluster's key.
type GatewayConfig struct {
	// URL is the gateway's address, https://host:port. Plain http is for a gateway on
	// this machine.
	URL string `yaml:"url"`
	// KeyFile names a file with the cluster's key, as "quartermaster cluster register"
	// showed it. It is read again for each delivery, so that a key can be exchanged.
	KeyFile string `yaml:"key_file"`
	// CAFile holds the certificates that are trusted, in PEM; the system's when empty.
	CAFile string `yaml:"ca_file"`
	// ClientCertFile and ClientKeyFile identify this node to a gateway that asks for a
	// certificate, in PEM; both are read again when they change.
	ClientCertFile string `yaml:"client_cert_file"`
	ClientKeyFile  string `yaml:"client_key_file"`
	// Timeout is how long a delivery may take.
	Timeout time.Duration `yaml:"timeout" default:"30s"`
}

// KafkaConfig delivers to Kafka itself instead of the gateway. Rights of Kafka are by
// topic: whoever has these credentials can write facts of every cluster. It is for
// networks that trust their nodes.
type KafkaConfig struct {
	// Brokers are the host:port addresses asked first. Give either these or a gateway.
	Brokers []string `yaml:"brokers"`
	// Mechanism authenticates: SCRAM-SHA-512, SCRAM-SHA-256, or none where CertFile does.
	Mechanism    string `yaml:"mechanism"`
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
	// TLS encrypts. CAFile holds the certificates that are trusted, CertFile and KeyFile
	// identify this node, all in PEM.
	TLS      bool   `yaml:"tls" default:"true"`
	CAFile   string `yaml:"ca_file"`
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

// SpoolConfig says where events wait.
type SpoolConfig struct {
	// Dir is a directory on a disk that survives a reboot.
	Dir string `yaml:"dir" default:"/var/lib/node-reporter"`
	// QuotaMiB bounds what waits. Eight GPUs fill 5 MiB a day. Beyond it the oldest
	// samples are dropped, and that is reported; faults never are.
	QuotaMiB int `yaml:"quota_mib" default:"256"`
	// ReserveKiB is kept free for faults when others fill the disk.
	ReserveKiB int `yaml:"reserve_kib" default:"1024"`
}

// CollectorConfig says how the GPUs are read.
type CollectorConfig struct {
	// Command is the collector.
	Command string `yaml:"command" default:"dcgm-collector"`
	// Engine is the DCGM that reads the GPUs: tcp://HOST:PORT or unix:PATH of an
	// nv-hostengine, embedded in the collector, or auto. Auto attaches to the first
	// nv-hostengine of this machine that root or this user started (Unix sockets in /run
	// and /tmp, then tcp://127.0.0.1:5555), and embeds DCGM while there is none.
	Engine string `yaml:"engine" default:"auto"`
	// Profiling reads SM, tensor and DRAM activity, where the driver allows it.
	Profiling bool `yaml:"profiling" default:"true"`
	// Silent is how long the collector may say nothing, or wait for one answer of DCGM,
	// before it is reported silent and started again: 5s to 10m.
	Silent time.Duration `yaml:"silent" default:"30s"`
	// Faults names a table of faults whose entries replace those of the project's own.
	Faults string `yaml:"faults"`
}

// AttributionConfig says who holds which GPU. Where several say something of a device,
// the static file wins over Slurm, and Slurm over Kubernetes.
type AttributionConfig struct {
	Kubernetes KubernetesConfig `yaml:"kubernetes"`
	Slurm      SlurmConfig      `yaml:"slurm"`
	// Static names a file for machines that no scheduler manages: a line for each
	// device with its UUID, its index or *, a workspace, and maybe a deployment and a
	// unit. It is read again when it changes.
	Static string `yaml:"static"`
	// Rules say to which deployment a pod or job belongs, and to which workspace a job
	// of Slurm, the first that matches. A job that none matches is of workspace
	// Unmapped. Who pays for a pod is said by signed mapping rules ("quartermaster
	// apply").
	Rules    []RuleConfig `yaml:"rules"`
	Unmapped string       `yaml:"unmapped" default:"unmapped"`
}

// KubernetesConfig asks the kubelet which pod holds what.
type KubernetesConfig struct {
	Enabled bool `yaml:"enabled" default:"false"`
	// Socket is the kubelet's.
	Socket string `yaml:"socket" default:"/var/lib/kubelet/pod-resources/kubelet.sock"`
	// Labels reads the labels of this node's pods from the Kubernetes API, for rules
	// that name labels. It needs the right to list pods.
	Labels bool `yaml:"labels" default:"false"`
	// NodeName is the node's name in Kubernetes; Node when empty.
	NodeName string `yaml:"node_name"`
}

// SlurmConfig finds the job that holds a GPU.
type SlurmConfig struct {
	// JobDir is the directory that the prolog writes (deploy/node/slurm-prolog.sh).
	JobDir string `yaml:"job_dir"`
	// Processes finds jobs by the cgroups of processes that have a GPU open. It needs
	// CAP_SYS_PTRACE.
	Processes bool `yaml:"processes" default:"false"`
}

// slurmNamespace is what jobs of Slurm have for a namespace in rules.
const slurmNamespace = "slurm"

// RuleConfig is one rule of attribution.
type RuleConfig struct {
	// Namespace is that of the pod, or slurm; every one when empty.
	Namespace string `yaml:"namespace" json:"namespace,omitempty"`
	// Labels are those that the pod or job must have: for a job account, partition and
	// what else the prolog wrote. A value * is any. They are hints: nothing that a pod's
	// labels say decides who pays.
	Labels map[string]string `yaml:"labels" json:"labels,omitempty"`
	// Workspace, of jobs alone, and Deployment are what it belongs to. {namespace} stands
	// for its namespace and {label:KEY} for a label of it.
	Workspace  string `yaml:"workspace" json:"workspace,omitempty"`
	Deployment string `yaml:"deployment" json:"deployment,omitempty"`
}

// RegisterConfig registers the node with what it knows of itself, for fleets in which
// nobody else does ("quartermaster apply", an import). A registration replaces the one
// before it whole.
type RegisterConfig struct {
	Enabled        bool   `yaml:"enabled" default:"false"`
	Provider       string `yaml:"provider"` // the cluster's when empty
	BillingAccount string `yaml:"billing_account"`
	ResourceID     string `yaml:"resource_id"`   // as on the supplier's bill
	SKU            string `yaml:"sku"`           // instance type
	BillingModel   string `yaml:"billing_model"` // reserved, on_demand, spot, capacity_block or owned
	Zone           string `yaml:"zone"`
	FabricDomain   string `yaml:"fabric_domain"`
}

const envPrefix = "NODE_REPORTER_"

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$`)

// readConfig reads the file and the environment and refuses what could not work. It
// opens no file with a secret and connects to nothing.
func readConfig(path string, getenv func(string) string) (*Config, error) {
	c := &Config{}
	f, err := configfile.Read(path, envPrefix, getenv, c)
	if err != nil {
		return nil, err
	}
	c.file = f
	c.validate(f)
	return c, f.Err()
}

func (c *Config) validate(f *configfile.File) {
	if c.Node == "" {
		c.Node, _ = os.Hostname() // when the host has none, the next line says what to do
	}
	name := func(field, value, what string) {
		if !plainName.MatchString(value) {
			f.Add(field, "%.80q is no name: give %s, in letters, digits, dots, colons, dashes and underscores", value, what)
		}
	}
	name("cluster", c.Cluster, "the cluster as it is registered")
	name("node", c.Node, "the node's name in the fleet")
	name("attribution.unmapped", c.Attribution.Unmapped, "a workspace")
	for _, p := range []struct {
		field string
		path  *string
	}{
		{"gateway.key_file", &c.Gateway.KeyFile}, {"gateway.ca_file", &c.Gateway.CAFile},
		{"gateway.client_cert_file", &c.Gateway.ClientCertFile}, {"gateway.client_key_file", &c.Gateway.ClientKeyFile},
		{"kafka.password_file", &c.Kafka.PasswordFile}, {"kafka.ca_file", &c.Kafka.CAFile},
		{"kafka.cert_file", &c.Kafka.CertFile}, {"kafka.key_file", &c.Kafka.KeyFile},
		{"spool.dir", &c.Spool.Dir}, {"collector.faults", &c.Collector.Faults},
		{"attribution.static", &c.Attribution.Static}, {"attribution.slurm.job_dir", &c.Attribution.Slurm.JobDir},
	} {
		f.Resolve(p.field, p.path)
	}
	within := func(field string, d, least, most time.Duration) {
		if d < least || d > most {
			f.Add(field, "%s is not within %s and %s", d, least, most)
		}
	}
	within("interval", c.Interval, time.Second, 5*time.Minute)
	if _, err := dcgm.ParseEngine(c.Collector.Engine); err != nil {
		f.Add("collector.engine", "%v", err)
	}
	within("collector.silent", c.Collector.Silent, 5*time.Second, 10*time.Minute)
	within("gateway.timeout", c.Gateway.Timeout, time.Second, 10*time.Minute)
	if c.Interval%time.Second != 0 {
		f.Add("interval", "%s is no whole number of seconds", c.Interval)
	}
	if c.Spool.QuotaMiB < 1 || c.Spool.QuotaMiB > 1<<20 {
		f.Add("spool.quota_mib", "%d is not within 1 and %d", c.Spool.QuotaMiB, 1<<20)
	}
	if c.Spool.ReserveKiB < 0 || c.Spool.ReserveKiB > c.Spool.QuotaMiB<<10 {
		f.Add("spool.reserve_kib", "%d is not within 0 and the quota", c.Spool.ReserveKiB)
	}
	c.validateDelivery(f)
	if _, _, err := net.SplitHostPort(c.Listen); c.Listen != "off" && err != nil {
		f.Add("listen", "is not host:port; write 127.0.0.1:9475, or off")
	}
	for i, r := range c.Attribution.Rules {
		at := "attribution.rules[" + strconv.Itoa(i) + "]"
		switch {
		case r.Workspace == "" && r.Deployment == "":
			f.Add(at+".deployment", "is needed: to which deployment it belongs")
		case r.Workspace != "" && r.Namespace != slurmNamespace:
			f.Add(at+".workspace", "is for jobs (namespace: slurm); who pays for pods is said by signed mapping rules: mapping_rules in a file of \"quartermaster apply\"")
		}
	}
	models := []string{"", string(domain.BillingReserved), string(domain.BillingOnDemand), string(domain.BillingSpot), string(domain.BillingCapacityBlock), string(domain.BillingOwned)}
	if !slices.Contains(models, c.Register.BillingModel) {
		f.Add("register.billing_model", "%.40q is unknown; %s", c.Register.BillingModel, domain.Suggest(c.Register.BillingModel, models[1:]))
	}
}

func (c *Config) validateDelivery(f *configfile.File) {
	g, k := c.Gateway, c.Kafka
	switch {
	case g.URL == "" && len(k.Brokers) == 0:
		f.Add("gateway.url", `is needed: the address of "quartermaster serve", https://host:port`)
	case g.URL != "" && len(k.Brokers) > 0:
		f.Add("kafka.brokers", "and gateway.url both say where events go: leave one out")
	case g.URL != "":
		u, err := url.Parse(g.URL)
		switch {
		case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
			f.Add("gateway.url", "is not https://host:port")
		case u.Scheme == "http" && !loopback(u.Hostname()):
			f.Add("gateway.url", "is not encrypted, and the key would be read on the way: write https")
		case u.Scheme != "https" && u.Scheme != "http":
			f.Add("gateway.url", "is not https://host:port")
		}
		if (g.ClientCertFile == "") != (g.ClientKeyFile == "") {
			f.Add("gateway", "client_cert_file and client_key_file belong together; give both or neither")
		}
		if g.KeyFile == "" {
			f.Add("gateway.key_file", `is needed: a file with the key that "quartermaster cluster register" showed`)
		}
	default:
		for i, b := range k.Brokers {
			if _, _, err := net.SplitHostPort(b); err != nil {
				f.Add("kafka.brokers["+strconv.Itoa(i)+"]", "is not host:port")
			}
		}
		if known := []string{"", "SCRAM-SHA-512", "SCRAM-SHA-256"}; !slices.Contains(known, k.Mechanism) {
			f.Add("kafka.mechanism", "%.40q is unknown; %s", k.Mechanism, domain.Suggest(k.Mechanism, known[1:]))
		}
		if (k.Mechanism == "") != (k.User == "" && k.PasswordFile == "") || (k.User == "") != (k.PasswordFile == "") {
			f.Add("kafka", "mechanism, user and password_file belong together; give all or none")
		}
		if (k.CertFile == "") != (k.KeyFile == "") {
			f.Add("kafka", "cert_file and key_file belong together; give both or neither")
		}
		if k.Mechanism == "" && k.CertFile == "" {
			f.Add("kafka", "authenticates by nothing; give mechanism, user and password_file, or cert_file and key_file")
		}
		if !k.TLS && k.CertFile != "" {
			f.Add("kafka.tls", "is off, and certificates need it")
		}
	}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// secrets returns the files that hold secrets, by field.
func (c *Config) secrets() map[string]string {
	out := map[string]string{}
	for field, path := range map[string]string{
		"gateway.key_file": c.Gateway.KeyFile, "gateway.client_key_file": c.Gateway.ClientKeyFile, "kafka.password_file": c.Kafka.PasswordFile, "kafka.key_file": c.Kafka.KeyFile,
	} {
		if path != "" {
			out[field] = path
		}
	}
	return out
}

// source names the stream of this node.
func (c *Config) source() string { return sourceOf(c.Cluster) + c.Node }

// sourceOf returns what the source of every event of a cluster's nodes begins with.
func sourceOf(cluster string) string { return "node-reporter/" + cluster + "/" }

// kubeNode is the node's name in Kubernetes.
func (c *Config) kubeNode() string {
	if n := c.Attribution.Kubernetes.NodeName; n != "" {
		return n
	}
	return c.Node
}
