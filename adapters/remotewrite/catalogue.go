package remotewrite

import (
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
)

// labelKey numbers the labels that are read. Exporters and relabelling rules spell them in several
// ways.
type labelKey uint8

const (
	keyUnknown labelKey = iota // not looked up yet
	keyOther
	keyName
	keyLe
	keyUUID
	keyProfile
	keyInstanceID
	keyVGPU
	keyGPUModel
	keyHostname
	keyNode
	keyPod
	keyExportedPod
	keyNamespace
	keyExportedNamespace
	keyContainer
	keyExportedContainer
	keyInstance
	keyModel
	keyEngine
	keyTPRank
	keyPPRank
	keyDPRank
	keyReason
	keyErr
	keyMethod
	keyResource
	keyCondition
	keyStatus
	keyDeployment
	keyStatefulSet
	keyTier
	keyCluster
	keyCount
)

var labelKeys = map[string]labelKey{
	"__name__": keyName, "le": keyLe,
	"UUID": keyUUID, "uuid": keyUUID,
	"GPU_I_PROFILE": keyProfile, "gpu_i_profile": keyProfile, "GPU_I_ID": keyInstanceID, "gpu_i_id": keyInstanceID,
	"vgpu": keyVGPU, "modelName": keyGPUModel, "modelname": keyGPUModel, "Hostname": keyHostname, "hostname": keyHostname,
	"node": keyNode, "exported_node": keyNode, "kubernetes_node": keyNode, "node_name": keyNode, "nodename": keyNode,
	"pod": keyPod, "pod_name": keyPod, "exported_pod": keyExportedPod,
	"namespace": keyNamespace, "pod_namespace": keyNamespace, "exported_namespace": keyExportedNamespace,
	"container": keyContainer, "container_name": keyContainer, "exported_container": keyExportedContainer,
	"instance": keyInstance, "model_name": keyModel, "engine": keyEngine,
	"tp_rank": keyTPRank, "pp_rank": keyPPRank, "dp_rank": keyDPRank,
	"finished_reason": keyReason, "err": keyErr, "method": keyMethod,
	"resource": keyResource, "condition": keyCondition, "status": keyStatus,
	"deployment": keyDeployment, "exported_deployment": keyDeployment,
	"statefulset": keyStatefulSet, "exported_statefulset": keyStatefulSet,
	"tier": keyTier, "cluster": keyCluster,
}

func keyOf(name []byte) labelKey {
	if k, ok := labelKeys[string(name)]; ok {
		return k
	}
	return keyOther
}

// family is the program that exposes a metric. It determines the metric's labels.
type family uint8

const (
	familyGPU family = iota + 1
	familyVLLM
	familySGLang
	familyTGI
	familyPods
	familyReplicas
	familyNodes
	familyFaults
)

var engines = map[family]string{familyVLLM: "vllm", familySGLang: "sglang", familyTGI: "tgi", familyPods: "kubernetes"}

// column is the column of NodeSampled that a GPU gauge fills.
type column uint8

const (
	columnSMActive column = iota // the columns of activity, best first
	columnEngineActive
	columnUtilization
	columnTensor
	columnDRAM
	columnMemory
	columnPower
	columnHeat
	columnClock
)

// activityFields are the DCGM fields of the activity columns.
var activityFields = [...]uint32{projections.FieldSMActive, projections.FieldEngineActive, projections.FieldUtilization}

// metric is a metric that is kept. A value is multiplied by scale and rounded. It is set aside if
// it is above most: DCGM's codes for "no value" are numbers beyond any reading. Fractions of fault
// values are set aside as well.
type metric struct {
	name   string
	family family
	column column              // of familyGPU
	serves domain.SeriesMetric // of engines and pods
	fact   fact                // of kube-state-metrics
	field  uint32              // DCGM field, for familyFaults
	scale  float64
	most   float64
}

// fact is the kind of statement that a metric of kube-state-metrics makes.
type fact uint8

const (
	factDesired fact = iota + 1
	factReady
	factCondition
	factUnschedulable
)

const (
	micros  = 1e6
	milli   = 1000
	maxHeld = 1 << 52 // the most that an event may hold
)

// catalogue lists the metrics that are kept.
var catalogue = func() []metric {
	list := []metric{{}} // index 0 means not looked up yet
	gpu := func(name string, c column, scale, most float64) {
		list = append(list, metric{name: name, family: familyGPU, column: c, scale: scale, most: most},
			metric{name: strings.ToLower(name), family: familyGPU, column: c, scale: scale, most: most})
	}
	gpu("DCGM_FI_PROF_SM_ACTIVE", columnSMActive, 1000, 1000)
	gpu("DCGM_FI_PROF_GR_ENGINE_ACTIVE", columnEngineActive, 1000, 1000)
	gpu("DCGM_FI_DEV_GPU_UTIL", columnUtilization, 10, 1000)
	gpu("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", columnTensor, 1000, 1000)
	gpu("DCGM_FI_PROF_DRAM_ACTIVE", columnDRAM, 1000, 1000)
	gpu("DCGM_FI_DEV_FB_USED", columnMemory, 1, 1<<24)
	gpu("DCGM_FI_DEV_POWER_USAGE", columnPower, 1, 100_000)
	gpu("DCGM_FI_DEV_GPU_TEMP", columnHeat, 1, 500)
	gpu("DCGM_FI_DEV_SM_CLOCK", columnClock, 1, 100_000)

	for name, field := range faultFields {
		for _, name := range []string{name, strings.ToLower(name)} {
			list = append(list, metric{name: name, family: familyFaults, field: field, scale: 1, most: 1 << 30})
		}
	}

	serve := func(f family, name string, m domain.SeriesMetric, scale float64) {
		x := metric{name: name, family: f, serves: m, scale: scale, most: maxHeld}
		if m == domain.MetricKVCache {
			x.most = 1000
		}
		list = append(list, x)
		if strings.Contains(name, ":") { // some configurations replace the colon
			x.name = strings.ReplaceAll(name, ":", "_")
			list = append(list, x)
		}
	}
	histogram := func(f family, name string, bucket, sum, count domain.SeriesMetric) {
		serve(f, name+"_bucket", bucket, 1)
		serve(f, name+"_sum", sum, micros)
		serve(f, name+"_count", count, 1)
	}
	histogram(familyVLLM, "vllm:time_to_first_token_seconds",
		domain.MetricTTFT, domain.MetricTTFTSum, domain.MetricTTFTCount)
	histogram(familyVLLM, "vllm:request_queue_time_seconds",
		domain.MetricQueueWait, domain.MetricQueueWaitSum, domain.MetricQueueWaitCount)
	serve(familyVLLM, "vllm:num_requests_waiting", domain.MetricWaiting, milli)
	serve(familyVLLM, "vllm:num_requests_running", domain.MetricRunning, milli)
	serve(familyVLLM, "vllm:kv_cache_usage_perc", domain.MetricKVCache, 1000)
	serve(familyVLLM, "vllm:gpu_cache_usage_perc", domain.MetricKVCache, 1000) // until 0.10
	serve(familyVLLM, "vllm:prompt_tokens_total", domain.MetricInputLength, 1)
	serve(familyVLLM, "vllm:generation_tokens_total", domain.MetricGeneratedLength, 1)
	serve(familyVLLM, "vllm:request_success_total", domain.MetricRequestsOK, 1)

	histogram(familySGLang, "sglang:time_to_first_token_seconds",
		domain.MetricTTFT, domain.MetricTTFTSum, domain.MetricTTFTCount)
	histogram(familySGLang, "sglang:queue_time_seconds",
		domain.MetricQueueWait, domain.MetricQueueWaitSum, domain.MetricQueueWaitCount)
	serve(familySGLang, "sglang:num_queue_reqs", domain.MetricWaiting, milli)
	serve(familySGLang, "sglang:num_running_reqs", domain.MetricRunning, milli)
	serve(familySGLang, "sglang:token_usage", domain.MetricKVCache, 1000)
	serve(familySGLang, "sglang:prompt_tokens_total", domain.MetricInputLength, 1)
	serve(familySGLang, "sglang:generation_tokens_total", domain.MetricGeneratedLength, 1)
	serve(familySGLang, "sglang:num_requests_total", domain.MetricRequestsReceived, 1)
	serve(familySGLang, "sglang:num_aborted_requests_total", domain.MetricRequestsAborted, 1)

	histogram(familyTGI, "tgi_request_queue_duration",
		domain.MetricQueueWait, domain.MetricQueueWaitSum, domain.MetricQueueWaitCount)
	serve(familyTGI, "tgi_batch_forward_duration_sum", domain.MetricPrefillSum, micros)
	serve(familyTGI, "tgi_batch_forward_duration_count", domain.MetricPrefillCount, 1)
	serve(familyTGI, "tgi_queue_size", domain.MetricWaiting, milli)
	serve(familyTGI, "tgi_batch_current_size", domain.MetricRunning, milli)
	serve(familyTGI, "tgi_request_success", domain.MetricRequestsOK, 1)
	serve(familyTGI, "tgi_request_failure", domain.MetricRequestsFailed, 1)
	serve(familyTGI, "tgi_request_input_length_sum", domain.MetricInputLength, 1)
	serve(familyTGI, "tgi_request_generated_tokens_sum", domain.MetricGeneratedLength, 1)

	serve(familyPods, "kube_pod_container_resource_requests", domain.MetricGPURequests, milli)
	for name, f := range map[string]fact{
		"kube_deployment_spec_replicas": factDesired, "kube_deployment_status_replicas_ready": factReady,
		"kube_statefulset_replicas": factDesired, "kube_statefulset_status_replicas_ready": factReady,
	} {
		list = append(list, metric{name: name, family: familyReplicas, fact: f, scale: 1, most: 1 << 20})
	}
	list = append(list,
		metric{name: "kube_node_status_condition", family: familyNodes, fact: factCondition, scale: 1, most: 1},
		metric{name: "kube_node_spec_unschedulable", family: familyNodes, fact: factUnschedulable, scale: 1, most: 1})
	slices.SortFunc(list[1:], func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return list
}()

// notKept is the index of a metric that is not in the catalogue.
const notKept int32 = -1

var metricNames = func() map[string]int32 {
	m := make(map[string]int32, len(catalogue))
	for i := 1; i < len(catalogue); i++ {
		m[catalogue[i].name] = int32(i)
	}
	return m
}()

// metricOf returns the index of a metric in the catalogue, or notKept.
func metricOf(name []byte) int32 {
	if i, ok := metricNames[string(name)]; ok {
		return i
	}
	return notKept
}

// Metrics returns the names of all metrics that are kept.
func Metrics() []string {
	names := make([]string, 0, len(catalogue))
	for _, m := range catalogue[1:] {
		names = append(names, m.name)
	}
	return names
}
