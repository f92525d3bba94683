package remotewrite

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Stanza returns what the Prometheus of a cluster needs in its configuration: where
// to write, with which key, and which series. keyfile is the file that holds the key
// on the machine or in the pod of Prometheus; step is the scrape_interval of the
// jobs whose series are kept, zero for 30 seconds. Prometheus 2.42 and later take it:
// protobuf_message, which came with 2.54, is left out, so version 1.0 is written.
func Stanza(cluster, url, keyfile string, step time.Duration) string {
	if step == 0 {
		step = defaultStep
	}
	var names strings.Builder
	for i, n := range Metrics() {
		if i > 0 {
			names.WriteByte('|')
		}
		names.WriteString(n)
	}
	quote := strconv.Quote // of YAML, a JSON string is one too
	return fmt.Sprintf(`remote_write:
  - name: quartermaster
    url: %s
    authorization:
      type: Bearer
      credentials_file: %s
    headers:
      # scrape_interval of the jobs below; the longest, where they differ.
      %s: %s
    write_relabel_configs:
      - source_labels: [__name__]
        regex: %s
        action: keep
      # What a series is of names of other things than GPUs is of no use here.
      - source_labels: [__name__, resource]
        regex: "kube_pod_container_resource_requests;(cpu|memory|ephemeral_storage)"
        action: drop
      # A series whose label cluster names another cluster is set aside. Where
      # Prometheus has another name for this one, say which:
      # - source_labels: [cluster]
      #   regex: ITS-NAME
      #   target_label: cluster
      #   replacement: %s
    queue_config:
      max_samples_per_send: 5000
      retry_on_http_429: true
    metadata_config:
      send: false
`, quote(url), quote(keyfile), StepHeader, step, quote(names.String()), quote(cluster))
}
