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

// Config is the file of a node. Every field except attribution.rules can be set in the environment
// instead. The variable is NODE_REPORTER_ and the path of the field's key in capitals, such as
// NODE_REPORTER_GATEWAY_KEY_FILE. Secrets are in files of their own, which only their owner may
// read. A relative path in the file is relative to the file's directory.
//
// The tag default is the value of a field that is not set. deploy/node/node-reporter.yaml is the
// manual for operators, with the same content as the comments here.
type Config struct {
	// Cluster is the cluster that this node belongs to, as registered.
	Cluster string `yaml:"cluster"`
	// Node is the node's name in the fleet; by default the host's name. In Kubernetes set it to
	// spec.nodeName.
	Node string `yaml:"node"`
	// Interval is the time that one sample covers: 1s to 5m.
	Interval time.Duration `yaml:"interval" default:"10s"`

	Gateway     GatewayConfig     `yaml:"gateway"`
	Kafka       KafkaConfig       `yaml:"kafka"`
	Spool       SpoolConfig       `yaml:"spool"`
	Collector   CollectorConfig   `yaml:"collector"`
	Attribution AttributionConfig `yaml:"attribution"`
	Register    RegisterConfig    `yaml:"register"`

	// Listen is the address of /metrics, /healthz and /livez; "off" means none.
	Listen string `yaml:"listen" default:"127.0.0.1:9475"`

	file *configfile.File
}

// GatewayConfig describes the gateway: "quartermaster serve", with the cluster's key.
type GatewayConfig struct {
	// URL is the gateway's address, https://host:port. Plain http is only for a gateway on this
	// machine.
	URL string `yaml:"url"`
	// KeyFile names a file with the cluster's key, as "quartermaster cluster register" showed it.
	// It is read again for each delivery, so that the key can be replaced.
	KeyFile string `yaml:"key_file"`
	// CAFile holds the trusted certificates, in PEM; by default the system's.
	CAFile string `yaml:"ca_file"`
	// ClientCertFile and ClientKeyFile identify this node to a gateway that asks for a certificate.
	// They are in PEM, and both are read again when they change.
	ClientCertFile string `yaml:"client_cert_file"`
	ClientKeyFile  string `yaml:"client_key_file"`
	// Timeout bounds the time of a delivery.
	Timeout time.Duration `yaml:"timeout" default:"30s"`
}

// KafkaConfig delivers directly to Kafka instead of the gateway. Kafka's rights are by topic:
// whoever has these credentials can write facts of every cluster. So it is only for networks that
// trust their nodes.
type KafkaConfig struct {
	// Brokers are the host:port addresses asked first. Give either these or a gateway.
	Brokers []string `yaml:"brokers"`
	// Mechanism authenticates: SCRAM-SHA-512, SCRAM-SHA-256, or empty if CertFile does.
	Mechanism    string `yaml:"mechanism"`
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
	// TLS encrypts. CAFile holds the trusted certificates. CertFile and KeyFile identify this node.
	// All are in PEM.
	TLS      bool   `yaml:"tls" default:"true"`
	CAFile   string `yaml:"ca_file"`
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// Shards is the number of shards that the cluster is registered with. The gateway tells it to
	// nodes, Kafka does not.
	Shards int `yaml:"shards" default:"1"`
}

// SpoolConfig describes the spool, where events wait for delivery.
type SpoolConfig struct {
	// Dir is a directory on a disk that survives a reboot.
	Dir string `yaml:"dir" default:"/var/lib/node-reporter"`
	// QuotaMiB bounds the waiting events. Eight GPUs fill 5 MiB a day. Beyond it the oldest samples
	// are dropped, and that is reported. Faults are never dropped.
	QuotaMiB int `yaml:"quota_mib" default:"256"`
	// ReserveKiB is kept free for faults if others fill the disk.
	ReserveKiB int `yaml:"reserve_kib" default:"1024"`
}

// CollectorConfig describes how the GPUs are read.
type CollectorConfig struct {
	// Command is the collector's program.
	Command string `yaml:"command" default:"dcgm-collector"`
	// Engine is the DCGM that reads the GPUs: tcp://HOST:PORT or unix:PATH of an nv-hostengine,
	// embedded in the collector, or auto. auto attaches to the first nv-hostengine of this machine
	// that root or this user started (Unix sockets in /run and /tmp, then tcp://127.0.0.1:5555),
	// and embeds DCGM if there is none.
	Engine string `yaml:"engine" default:"auto"`
	// Profiling reads SM, tensor and DRAM activity, if the driver allows it.
	Profiling bool `yaml:"profiling" default:"true"`
	// Silent is how long the collector may send nothing, or wait for one answer of DCGM, before it
	// is reported silent and restarted: 5s to 10m.
	Silent time.Duration `yaml:"silent" default:"30s"`
	// Faults names a fault table whose entries replace those of the built-in one.
	Faults string `yaml:"faults"`
}

// AttributionConfig describes the sources of GPU holders. If several sources name a holder of a
// device, the static file takes precedence over Slurm, and Slurm over Kubernetes.
type AttributionConfig struct {
	Kubernetes KubernetesConfig `yaml:"kubernetes"`
	Slurm      SlurmConfig      `yaml:"slurm"`
	// Static names a file for machines without a scheduler. It has a line for each device with its
	// UUID, its index or *, a workspace, and optionally a deployment and a unit. It is read again
	// when it changes.
	Static string `yaml:"static"`
	// Rules assign a deployment to a pod or job, and a workspace to a Slurm job. The first matching
	// rule applies. A job that no rule matches belongs to workspace Unmapped. Signed mapping rules
	// ("quartermaster apply") say who pays for a pod.
	Rules    []RuleConfig `yaml:"rules"`
	Unmapped string       `yaml:"unmapped" default:"unmapped"`
}

// KubernetesConfig asks the kubelet which pod holds which GPU.
type KubernetesConfig struct {
	Enabled bool `yaml:"enabled" default:"false"`
	// Socket is the kubelet's socket.
	Socket string `yaml:"socket" default:"/var/lib/kubelet/pod-resources/kubelet.sock"`
	// Labels reads the labels of this node's pods from the Kubernetes API, for rules
	// that name labels. It needs the right to list pods.
	Labels bool `yaml:"labels" default:"false"`
	// NodeName is the node's name in Kubernetes; by default Node.
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

// slurmNamespace is the namespace of Slurm jobs in rules.
const slurmNamespace = "slurm"

// RuleConfig is one rule of attribution.
type RuleConfig struct {
	// Namespace is the pod's namespace, or slurm; empty matches all.
	Namespace string `yaml:"namespace" json:"namespace,omitempty"`
	// Labels are the labels that the pod or job must have. For a job they are account, partition
	// and the others that the prolog wrote. The value * matches any. They are hints: a pod's labels
	// do not decide who pays.
	Labels map[string]string `yaml:"labels" json:"labels,omitempty"`
	// Workspace (only for jobs) and Deployment are assigned to the pod or job. {namespace} stands
	// for its namespace and {label:KEY} for one of its labels.
	Workspace  string `yaml:"workspace" json:"workspace,omitempty"`
	Deployment string `yaml:"deployment" json:"deployment,omitempty"`
}

// RegisterConfig registers the node with data from the collector, for fleets in which nothing else
// does ("quartermaster apply", an import). A registration replaces the previous one completely.
type RegisterConfig struct {
	Enabled        bool   `yaml:"enabled" default:"false"`
	Provider       string `yaml:"provider"` // by default the cluster's
	BillingAccount string `yaml:"billing_account"`
	ResourceID     string `yaml:"resource_id"`   // as on the supplier's bill
	SKU            string `yaml:"sku"`           // instance type
	BillingModel   string `yaml:"billing_model"` // reserved, on_demand, spot, capacity_block or owned
	Zone           string `yaml:"zone"`
	FabricDomain   string `yaml:"fabric_domain"`
}

const envPrefix = "NODE_REPORTER_"

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$`)

// readConfig reads the file and the environment and refuses an invalid configuration. It opens no
// file with a secret and makes no connection.
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
		c.Node, _ = os.Hostname() // if the host has no name, the check below says what to do
	}
	name := func(field, value, what string) {
		if !plainName.MatchString(value) {
			f.Add(field, "%.80q is not a name: give %s, in letters, digits, dots, colons, dashes and underscores", value, what)
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
		f.Add("interval", "%s is not a whole number of seconds", c.Interval)
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
			f.Add(at+".deployment", "is needed: the deployment that the pod or job belongs to")
		case r.Workspace != "" && r.Namespace != slurmNamespace:
			f.Add(at+".workspace", "is for jobs (namespace: slurm); "+
				"signed mapping rules say who pays for pods: mapping_rules in a file of \"quartermaster apply\"")
		}
	}
	models := []string{
		"", string(domain.BillingReserved), string(domain.BillingOnDemand), string(domain.BillingSpot),
		string(domain.BillingCapacityBlock), string(domain.BillingOwned),
	}
	if !slices.Contains(models, c.Register.BillingModel) {
		suggestion := domain.Suggest(c.Register.BillingModel, models[1:])
		f.Add("register.billing_model", "%.40q is unknown; %s", c.Register.BillingModel, suggestion)
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
			f.Add("gateway.url", "is not encrypted, so the key could be read in transit: write https")
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
			f.Add("kafka", "has no authentication; give mechanism, user and password_file, or cert_file and key_file")
		}
		if k.Shards < 1 || k.Shards > domain.MaxShards {
			f.Add("kafka.shards", "%d is not within 1 and %d", k.Shards, domain.MaxShards)
		}
		if !k.TLS && k.CertFile != "" {
			f.Add("kafka.tls", "is off, but certificates need it")
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
		"gateway.key_file": c.Gateway.KeyFile, "gateway.client_key_file": c.Gateway.ClientKeyFile,
		"kafka.password_file": c.Kafka.PasswordFile, "kafka.key_file": c.Kafka.KeyFile,
	} {
		if path != "" {
			out[field] = path
		}
	}
	return out
}

// source names the stream of this node.
func (c *Config) source() string { return sourceOf(c.Cluster) + c.Node }

// sourceOf returns the prefix of the source of all events of a cluster's nodes.
func sourceOf(cluster string) string { return "node-reporter/" + cluster + "/" }

// kubeNode returns the node's name in Kubernetes.
func (c *Config) kubeNode() string {
	if n := c.Attribution.Kubernetes.NodeName; n != "" {
		return n
	}
	return c.Node
}
