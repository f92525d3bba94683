package remotewrite

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Stanza returns the configuration that the Prometheus of a cluster needs: where to write, with
// which key, and which series. keyfile is the file with the key on the machine or in the pod of
// Prometheus. step is the scrape_interval of the jobs whose series are kept; zero means 30 seconds.
// The stanza works with Prometheus 2.42 and later. It omits protobuf_message, which 2.54 added, so
// Prometheus writes version 1.0.
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
	quote := strconv.Quote // a JSON string is also a YAML string
	return fmt.Sprintf(`remote_write:
  - name: quartermaster
    url: %s
    authorization:
      type: Bearer
      credentials_file: %s
    headers:
      # scrape_interval of the jobs below; the longest, if they differ.
      %s: %s
    write_relabel_configs:
      - source_labels: [__name__]
        regex: %s
        action: keep
      # Requests for resources other than GPUs are not needed.
      - source_labels: [__name__, resource]
        regex: "kube_pod_container_resource_requests;(cpu|memory|ephemeral_storage)"
        action: drop
      # A series whose label cluster names another cluster is set aside. If Prometheus
      # has another name for this cluster, map it:
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
