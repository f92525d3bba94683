package wire

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"quartermaster/domain"
	eventsv1 "quartermaster/schemas/events/v1"
)

// pods are names of pods in Kubernetes: three deployments of two workspaces share a machine.
var pods = []struct{ workspace, deployment, pod string }{
	{"search-platform", "llama-3-70b-instruct", "llama-3-70b-instruct-7d9f8b6c5d-x2v4q"},
	{"search-platform", "llama-3-70b-instruct", "llama-3-70b-instruct-7d9f8b6c5d-8kzlw"},
	{"search-platform", "llama-3-70b-instruct", "llama-3-70b-instruct-7d9f8b6c5d-m5t7p"},
	{"search-platform", "llama-3-70b-instruct", "llama-3-70b-instruct-7d9f8b6c5d-qq9rn"},
	{"search-platform", "embedder-e5-large", "embedder-e5-large-5f64c9d7bb-2hjvd"},
	{"search-platform", "embedder-e5-large", "embedder-e5-large-5f64c9d7bb-zt6sx"},
	{"ml-research", "whisper-finetune", "whisper-finetune-86d5f7c4f9-w4bdc"},
	{"ml-research", "whisper-finetune", "whisper-finetune-86d5f7c4f9-n7g2k"},
}

// table collects names in the order of their first use.
type table []string

func (t *table) ref(s string) uint32 {
	if i := slices.Index(*t, s); i >= 0 {
		return uint32(i + 1)
	}
	*t = append(*t, s)
	return uint32(len(*t))
}

// node samples a machine of eight GPUs, whole or each divided into instances, with one holder per
// entry and every named metric.
func node(instances int) *domain.Envelope {
	s := &domain.NodeSampled{
		Node:          "ip-10-42-117-203.ec2.internal",
		Interval:      domain.Interval{From: 1780272000 * domain.Second, To: 1780272600 * domain.Second},
		ActivityField: 1002,
		SkewNanos:     1_250_000,
	}
	var names table
	for gpu := range 8 {
		id := domain.DeriveGPUID("eks-prod-us-east-1", s.Node, gpu)
		if instances > 0 {
			s.Parents = append(s.Parents, id[:]...)
		}
		for i := range max(1, instances) {
			p := pods[gpu]
			if instances > 0 {
				id = domain.DeriveGPUID("eks-prod-us-east-1", s.Node, 100+instances*gpu+i)
				s.Parent = append(s.Parent, uint32(gpu+1))
				s.Profile = append(s.Profile, names.ref("1g.10gb"))
				p.pod = p.pod[:len(p.pod)-2] + fmt.Sprintf("%02d", i)
			}
			s.IDs = append(s.IDs, id[:]...)
			s.HolderWorkspace = append(s.HolderWorkspace, names.ref(p.workspace))
			s.HolderDeployment = append(s.HolderDeployment, names.ref(p.deployment))
			s.HolderUnit = append(s.HolderUnit, names.ref(p.pod))
			s.Holder = append(s.Holder, uint32(len(s.HolderUnit)))
			k := uint32(7*gpu + i)
			s.ActivityMean = append(s.ActivityMean, 741+k)
			s.ActivityMin = append(s.ActivityMin, 212+k)
			s.ActivityMax = append(s.ActivityMax, 932+k)
			s.TensorActive = append(s.TensorActive, 388+k)
			s.DRAMActive = append(s.DRAMActive, 451+k)
			s.MemoryUsedMiB = append(s.MemoryUsedMiB, 71_233+k)
			s.PowerWatts = append(s.PowerWatts, 611+k)
			s.TemperatureC = append(s.TemperatureC, 55+k%20)
			s.SMClockMHz = append(s.SMClockMHz, 1755)
		}
	}
	s.Strings = names
	return &domain.Envelope{
		Source:      "reporter/eks-prod-us-east-1/" + s.Node,
		Incarnation: 1780185600,
		Sequence:    4711,
		Time:        s.Interval.To,
		Cluster:     "eks-prod-us-east-1",
		Subject:     s.Node,
		Event:       s,
	}
}

func mustEncode(t testing.TB, env *domain.Envelope) domain.Record {
	t.Helper()
	rec, err := Encode(env)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// A sample of eight whole GPUs takes at most 700 bytes. It takes 652, of which the UUIDs are 128.
// The same machine divided into 56 instances of 1g.10gb, each with a holder of its own, takes
// 2,880, of which the UUIDs are 1,024.
func TestSampleSize(t *testing.T) {
	for _, c := range []struct {
		name      string
		instances int
		most      int
	}{
		{"8 whole GPUs", 0, 700},
		{"56 MIG instances", 7, 2900},
	} {
		rec := mustEncode(t, node(c.instances))
		headers := 0
		for _, h := range rec.Headers {
			headers += len(h.Key) + len(h.Value)
		}
		t.Logf("%s: %d bytes, and %d of headers, %d of key", c.name, len(rec.Value), headers, len(rec.Key))
		if len(rec.Value) > c.most {
			t.Errorf("%s: %d bytes, more than %d", c.name, len(rec.Value), c.most)
		}
	}
}

func TestSampleDecodesWithoutAllocating(t *testing.T) {
	rec := mustEncode(t, node(0))
	var d Decoder
	var env domain.Envelope
	if n := testing.AllocsPerRun(100, func() {
		if err := d.Decode(&rec, &env); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("decoding a sample allocates %v times, want never", n)
	}
}

// Arrays are decoded as protowire decodes them number by number, whatever their sizes, wherever
// they are truncated and whatever bytes follow.
func TestUnpack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b []byte
		for range rapid.IntRange(0, 20).Draw(t, "runs") {
			bits, run := rapid.IntRange(0, 33).Draw(t, "bits"), rapid.IntRange(1, 9).Draw(t, "run")
			for range run {
				b = protowire.AppendVarint(b, rapid.Uint64Range(1<<bits>>1, 1<<bits-1).Draw(t, "value"))
			}
		}
		b = b[:rapid.IntRange(0, len(b)).Draw(t, "length")]
		var want []uint32
		for rest := b; len(rest) > 0; {
			v, n := protowire.ConsumeVarint(rest)
			if n < 0 || v > math.MaxUint32 {
				want = nil
				break
			}
			want, rest = append(want, uint32(v)), rest[n:]
		}
		behind := rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "behind")
		values := make([]uint32, len(b)+8)
		n := unpack(values, append(slices.Clone(b), behind...)[:len(b):len(b)+len(behind)])
		if want == nil && n > 0 || want == nil && n == 0 && len(b) > 0 || want != nil && (n < 0 || !slices.Equal(values[:n], want)) {
			t.Fatalf("%x is read as %d values %d, want %d", b, n, values[:max(n, 0)], want)
		}
	})
}

// The same sample in this package's decoder, which checks text and decodes names, and in generated
// code, which does neither.
func BenchmarkDecodeSample(b *testing.B) {
	for _, c := range []struct {
		name      string
		instances int
	}{{"whole", 0}, {"mig", 7}} {
		rec := mustEncode(b, node(c.instances))
		b.Run(c.name+"/ours", func(b *testing.B) {
			b.ReportAllocs()
			var d Decoder
			var env domain.Envelope
			for b.Loop() {
				if err := d.Decode(&rec, &env); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/vtproto-unsafe", func(b *testing.B) {
			b.ReportAllocs()
			m := &eventsv1.NodeSampled{}
			for b.Loop() {
				m.Reset()
				if err := m.UnmarshalVTUnsafe(rec.Value); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/protobuf-go", func(b *testing.B) {
			b.ReportAllocs()
			m := &eventsv1.NodeSampled{}
			for b.Loop() {
				if err := proto.Unmarshal(rec.Value, m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncodeSample(b *testing.B) {
	env := node(0)
	rec := mustEncode(b, env)
	m := &eventsv1.NodeSampled{}
	if err := proto.Unmarshal(rec.Value, m); err != nil {
		b.Fatal(err)
	}
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Encode(env); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("vtproto", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := m.MarshalVT(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("protobuf-go", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := proto.Marshal(m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// The widest of the high-volume events, with all its columns filled.
func BenchmarkBillingLine(b *testing.B) {
	env := envelope(&counter{}, &domain.BillingLineRecorded{})
	rec := mustEncode(b, env)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Encode(env); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		var d Decoder
		var got domain.Envelope
		for b.Loop() {
			if err := d.Decode(&rec, &got); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode/protobuf-go", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := proto.Unmarshal(rec.Value, &eventsv1.BillingLineRecorded{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
