package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	kafkago "github.com/segmentio/kafka-go"

	"quartermaster/domain"
)

// benchRecords resemble telemetry: two short headers and 300 bytes, half of them incompressible.
func benchRecords(tp domain.TopicPartition, n int) []domain.Record {
	rng := rand.New(rand.NewPCG(1, uint64(tp.Partition)))
	recs := make([]domain.Record, n)
	for i := range recs {
		v := make([]byte, 300)
		for j := 0; j < 150; j++ {
			v[j] = byte(rng.Uint32())
		}
		recs[i] = domain.Record{
			Topic: tp.Topic, Partition: tp.Partition, Time: domain.Instant(1_750_000_000+int64(i)) * domain.Second,
			Key: []byte("cluster-17"), Value: v,
			Headers: []domain.Header{{Key: "ce_type", Value: []byte("NodeSampled")}, {Key: "s", Value: []byte("1")}},
		}
	}
	return recs
}

// BenchmarkDrain reads one partition, or four concurrently, and drops the records: with this
// package and with the fastest way of kafka-go.
func BenchmarkDrain(b *testing.B) {
	n := 200_000
	if s := os.Getenv("QM_BENCH_RECORDS"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	l := openAny(b)
	topic := newTopic(b, l, 4)
	var tps []domain.TopicPartition
	for p := range 4 {
		tp := domain.TopicPartition{Topic: topic, Partition: p}
		tps = append(tps, tp)
		recs := benchRecords(tp, 10_000)
		for range n / 4 / len(recs) {
			if err := l.Append(b.Context(), recs); err != nil {
				b.Fatal(err)
			}
		}
	}
	drain := func(ctx context.Context, tp domain.TopicPartition, end int64) error {
		return l.Read(ctx, tp, 0, end, func([]domain.Record) error { return nil })
	}
	byKafkaGo := func(ctx context.Context, tp domain.TopicPartition, end int64) error {
		at, err := l.leaders(ctx, string(tp.Topic))
		if err != nil {
			return err
		}
		c, err := kafkago.DialPartition(ctx, "tcp", at[tp], kafkago.Partition{
			Topic: string(tp.Topic), ID: tp.Partition, Leader: mustBroker(at[tp]),
		})
		if err != nil {
			return err
		}
		defer c.Close()
		for offset := int64(0); offset < end; {
			if _, err := c.Seek(offset, kafkago.SeekAbsolute|kafkago.SeekDontCheck); err != nil {
				return err
			}
			batch := c.ReadBatchWith(kafkago.ReadBatchConfig{MinBytes: 1, MaxBytes: 8 << 20})
			for {
				m, err := batch.ReadMessage()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					return err
				}
				offset = m.Offset + 1
			}
			if err := batch.Close(); err != nil {
				return err
			}
		}
		return nil
	}
	for _, way := range []struct {
		name string
		read func(context.Context, domain.TopicPartition, int64) error
	}{{"Read", drain}, {"kafka-go", byKafkaGo}} {
		for _, parts := range []int{1, 4} {
			b.Run(fmt.Sprintf("%s/partitions=%d", way.name, parts), func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					var wg sync.WaitGroup
					for _, tp := range tps[:parts] {
						wg.Go(func() {
							if err := way.read(b.Context(), tp, int64(n/4)); err != nil {
								b.Error(err)
							}
						})
					}
					wg.Wait()
				}
				b.ReportMetric(float64(b.N*n/4*parts)/b.Elapsed().Seconds(), "records/s")
			})
		}
	}
}

func mustBroker(address string) kafkago.Broker {
	var host string
	var port int
	for i := len(address) - 1; i >= 0; i-- {
		if address[i] == ':' {
			host = address[:i]
			port, _ = strconv.Atoi(address[i+1:])
			break
		}
	}
	return kafkago.Broker{Host: host, Port: port}
}

func BenchmarkAppend(b *testing.B) {
	for _, codec := range []struct {
		name  string
		codec Codec
	}{{"zstd", Zstd}, {"lz4", LZ4}} {
		for _, parts := range []int{1, 4} {
			for _, n := range []int{1, 100, 1000} {
				b.Run(fmt.Sprintf("%s/partitions=%d/records=%d", codec.name, parts, n), func(b *testing.B) {
					l := openAny(b)
					l.cfg.Codec = codec.codec
					topic := newTopic(b, l, parts)
					var recs []domain.Record
					for p := range parts {
						recs = append(recs, benchRecords(domain.TopicPartition{Topic: topic, Partition: p}, n)...)
					}
					b.ReportAllocs()
					b.ResetTimer()
					for range b.N {
						if err := l.Append(b.Context(), recs); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(b.N*len(recs))/b.Elapsed().Seconds(), "records/s")
				})
			}
		}
	}
}
