package domain

import "encoding/binary"

// Rules for telemetry events.

// The numbers of NodeSampled's layout.
const (
	idBytes = 16
	// A value in an array is stored plus one, so 1000 per mille is 1001.
	storedPermille = 1001
	maxBuckets     = 256
)

func (c *checker) nodeSampled(e *NodeSampled) {
	c.id("node", e.Node)
	c.sample("interval", e.Interval)
	if len(e.IDs)%idBytes != 0 || len(e.Parents)%idBytes != 0 {
		c.bad("ids", "has %d and parents %d bytes, want multiples of %d", len(e.IDs), len(e.Parents), idBytes)
		return
	}
	n, parents, holders := len(e.IDs)/idBytes, len(e.Parents)/idBytes, len(e.HolderWorkspace)
	switch {
	case n > maxEntries:
		c.bad("ids", "has %d entries, at most %d are allowed", n, maxEntries)
	case parents > n:
		c.bad("parents", "has %d GPUs for %d entries", parents, n)
	case holders > n:
		c.bad("holder_workspace", "has %d holders for %d entries", holders, n)
	case len(e.Strings) > 5*n:
		// Each entry names a profile, a model and a holder by three strings at most.
		c.bad("strings", "has %d strings for %d entries", len(e.Strings), n)
	}
	c.column("parent", e.Parent, n)
	c.column("profile", e.Profile, n)
	c.column("model", e.Model, n)
	c.column("replica", e.Replica, n)
	c.column("holder", e.Holder, n)
	c.column("activity_mean", e.ActivityMean, n)
	c.column("activity_min", e.ActivityMin, n)
	c.column("activity_max", e.ActivityMax, n)
	c.column("tensor_active", e.TensorActive, n)
	c.column("dram_active", e.DRAMActive, n)
	c.column("memory_used_mib", e.MemoryUsedMiB, n)
	c.column("power_watts", e.PowerWatts, n)
	c.column("temperature_c", e.TemperatureC, n)
	c.column("sm_clock_mhz", e.SMClockMHz, n)
	c.column("holder_deployment", e.HolderDeployment, holders)
	c.column("holder_unit", e.HolderUnit, holders)
	if len(e.OtherField) != len(e.OtherEntry) || len(e.OtherValue) != len(e.OtherEntry) {
		c.bad("other_entry", "has %d entries beside %d fields and %d values",
			len(e.OtherEntry), len(e.OtherField), len(e.OtherValue))
	}
	if e.ActivityField == 0 && len(e.ActivityMean)+len(e.ActivityMin)+len(e.ActivityMax) > 0 {
		c.bad("activity_field", "is missing, so what was measured is unknown")
	}
	if c.err != nil {
		return
	}
	c.devices(e.IDs, e.Replica)
	c.below("parent", e.Parent, parents)
	c.below("profile", e.Profile, len(e.Strings))
	c.below("model", e.Model, len(e.Strings))
	c.below("holder", e.Holder, holders)
	c.below("activity_mean", e.ActivityMean, storedPermille)
	c.below("activity_min", e.ActivityMin, storedPermille)
	c.below("activity_max", e.ActivityMax, storedPermille)
	c.below("tensor_active", e.TensorActive, storedPermille)
	c.below("dram_active", e.DRAMActive, storedPermille)
	c.below("holder_workspace", e.HolderWorkspace, len(e.Strings))
	c.below("holder_deployment", e.HolderDeployment, len(e.Strings))
	c.below("holder_unit", e.HolderUnit, len(e.Strings))
	c.others(e, n)
	for _, s := range e.Strings {
		if s == "" || len(s) > maxID || !plain(s) {
			c.id("strings", s)
		}
	}
}

// devices refuses an entry without an id, and two entries of one device and replica, which would
// add to the same sums. It compares two ids only if a combination of two of their bytes was seen
// before.
func (c *checker) devices(ids []byte, replica []uint32) {
	var met [4]uint64
	for i, rest := 0, ids; len(rest) >= idBytes; i, rest = i+1, rest[idBytes:] {
		id := (*[idBytes]byte)(rest)
		if binary.LittleEndian.Uint64(id[:8])|binary.LittleEndian.Uint64(id[8:]) == 0 {
			c.bad("ids", "entry %d is all zero", i)
			return
		}
		mark := id[0] ^ id[idBytes-1]
		word, bit := &met[mark>>6], uint64(1)<<(mark&63)
		if *word&bit != 0 {
			for j := range i {
				if *id == [idBytes]byte(ids[j*idBytes:]) && (len(replica) == 0 || replica[i] == replica[j]) {
					c.bad("ids", "entries %d and %d are both %s", j, i, GPUID(*id))
					return
				}
			}
		}
		*word |= bit
	}
}

// others accepts further readings in ascending order of entries, and of fields within an entry, so
// that there are no duplicates.
func (c *checker) others(e *NodeSampled, n int) {
	if len(e.OtherEntry) == 0 || !c.listed("other_entry", len(e.OtherEntry)) {
		return
	}
	for i, entry := range e.OtherEntry {
		if uint64(entry) >= uint64(n) {
			c.bad("other_entry", "names entry %d of %d", entry, n)
			return
		}
		if i > 0 && (entry < e.OtherEntry[i-1] || entry == e.OtherEntry[i-1] && e.OtherField[i] <= e.OtherField[i-1]) {
			c.bad("other_entry", "reading %d is of entry %d and field %d, want them ascending", i, entry, e.OtherField[i])
			return
		}
	}
}

// column refuses an array that is neither empty nor of the required length.
func (c *checker) column(field string, col []uint32, n int) {
	if len(col) != 0 && len(col) != n {
		c.bad(field, "has %d entries, want none or %d", len(col), n)
	}
}

// below refuses a value above most. It does so without a branch per value, because every array of
// every sample passes here: where a value exceeds the bound, the difference is negative.
func (c *checker) below(field string, col []uint32, most int) {
	bound, all := int64(most), int64(0)
	rest := col
	for ; len(rest) >= 4; rest = rest[4:] {
		all |= (bound - int64(rest[0])) | (bound - int64(rest[1])) | (bound - int64(rest[2])) | (bound - int64(rest[3]))
	}
	for _, v := range rest {
		all |= bound - int64(v)
	}
	if all >= 0 {
		return
	}
	for i, v := range col {
		if uint64(v) > uint64(most) {
			c.bad(field, "entry %d is %d, at most %d is allowed", i, v, most)
			return
		}
	}
}

func (c *checker) servingSampled(e *ServingSampled) {
	c.id("deployment", e.Deployment)
	c.optionalID("node", e.Node)
	c.optionalID("unit", e.Unit)
	c.id("model", e.Model)
	c.optionalID("tier", e.Tier)
	c.id("engine", e.Engine)
	c.sample("interval", e.Interval)
	c.atMost("kv_cache_permille", e.KVCachePermille, 1000)
	h := e.TTFT
	switch {
	case len(h.Bounds) > maxBuckets:
		c.bad("ttft.bounds", "has %d entries, at most %d are allowed", len(h.Bounds), maxBuckets)
	case len(h.Bounds) == 0 && len(h.Counts) == 0:
		// The server does not report the metric.
	case len(h.Counts) != len(h.Bounds)+1:
		c.bad("ttft.counts", "has %d entries for %d bounds, want one more than bounds", len(h.Counts), len(h.Bounds))
	}
	for i := 1; i < len(h.Bounds) && c.err == nil; i++ {
		if h.Bounds[i] <= h.Bounds[i-1] {
			c.bad("ttft.bounds", "entry %d is %d after %d, want ascending bounds", i, h.Bounds[i], h.Bounds[i-1])
		}
	}
}

// The size limits of one MetricsObserved. One request of a monitoring system has some thousands of
// samples.
const (
	maxSeries   = 1 << 17
	maxServers  = 1 << 14
	maxReadings = 1 << 20
	maxStepMs   = 3_600_000
	// maxValue is above any count or number of microseconds of a century. Sums of some thousands of
	// them fit in 64 bits.
	maxValue = 1 << 52
)

func (c *checker) metricsObserved(e *MetricsObserved) {
	servers, series, samples := len(e.Engine), len(e.Server), len(e.Offset)
	switch {
	case servers == 0 || servers > maxServers:
		c.bad("engine", "has %d entries, want 1 to %d", servers, maxServers)
	case series == 0 || series > maxSeries:
		c.bad("server", "has %d entries, want 1 to %d", series, maxSeries)
	case samples == 0 || samples > maxReadings:
		c.bad("offset_ms", "has %d entries, want 1 to %d", samples, maxReadings)
	case len(e.Strings) > 6*servers:
		c.bad("strings", "has %d strings for %d servers", len(e.Strings), servers)
	case len(e.Value) != samples:
		c.bad("value", "has %d entries, want %d", len(e.Value), samples)
	case len(e.Bound) != series || len(e.Series) != series:
		c.bad("bound", "has %d entries and series %d, want %d", len(e.Bound), len(e.Series), series)
	case e.StepMs == 0 || e.StepMs > maxStepMs:
		c.bad("step_ms", "is %d, want 1 to %d", e.StepMs, maxStepMs)
	case e.Base%(Second/1000) != 0:
		c.bad("base", "is not a whole millisecond")
	}
	c.instant("base", e.Base)
	for _, col := range []struct {
		name   string
		values []uint32
		n      int
	}{
		{"deployment", e.Deployment, servers}, {"model", e.Model, servers}, {"tier", e.Tier, servers}, {"unit", e.Unit, servers},
		{"node", e.Node, servers}, {"metric", e.Metric, series}, {"samples", e.Samples, series},
	} {
		if len(col.values) != col.n {
			c.bad(col.name, "has %d entries, want %d", len(col.values), col.n)
		}
	}
	if c.err != nil {
		return
	}
	for _, refs := range [][]uint32{e.Engine, e.Deployment, e.Model, e.Tier, e.Unit, e.Node} {
		c.below("strings", refs, len(e.Strings))
	}
	for i := range servers {
		if e.Engine[i] == 0 || e.Deployment[i] == 0 || e.Unit[i] == 0 {
			c.bad("engine", "server %d lacks its engine, deployment or unit", i)
			return
		}
	}
	c.below("server", e.Server, servers-1)
	left := samples
	for i := range series {
		kind := SeriesMetric(e.Metric[i]).Kind()
		switch {
		case kind == UnknownKind:
			c.bad("metric", "entry %d is %d, which this program does not know", i, e.Metric[i])
		case (kind == BucketKind) != (e.Bound[i] != 0):
			c.bad("bound", "entry %d is %d, and a bucket has one where nothing else has", i, e.Bound[i])
		case e.Samples[i] == 0 || uint64(e.Samples[i]) > uint64(left):
			c.bad("samples", "entry %d is %d of the %d that are left", i, e.Samples[i], left)
		}
		if c.err != nil {
			return
		}
		left -= int(e.Samples[i])
	}
	if left != 0 {
		c.bad("samples", "%d samples are of no series", left)
	}
	c.below("offset_ms", e.Offset, int(maxSample/(Second/1000)))
	for i, v := range e.Value {
		if v > maxValue {
			c.bad("value", "entry %d is %d, at most %d is allowed", i, v, uint64(maxValue))
			return
		}
	}
	for _, s := range e.Strings {
		c.id("strings", s)
	}
}

func (c *checker) demandObserved(e *DemandObserved) {
	c.id("pool", e.Pool)
	c.optionalID("region", e.Region)
	c.optionalID("model", e.Model)
	oneOf(c, "unit", e.Unit, "gpu", "vm")
	c.sample("interval", e.Interval)
}

func (c *checker) usageCorrected(e *UsageCorrected) {
	c.id("correction", e.Correction)
	c.id("node", e.Node)
	if e.GPU == (GPUID{}) {
		c.bad("gpu", "is missing")
	}
	c.interval("interval", e.Interval)
	c.optionalID("workspace", e.Workspace)
	c.optionalID("deployment", e.Deployment)
	c.optionalID("unit", e.Unit)
	c.text("reason", e.Reason)
	if e.Reason == "" {
		c.bad("reason", "is missing")
	}
}
