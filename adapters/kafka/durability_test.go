package kafka

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"quartermaster/domain"
)

// The actual settings of the topics count, not those that new topics would get.
func TestReplicasAreChecked(t *testing.T) {
	for _, c := range []struct {
		replicas, inSync, configured int
		want                         string // the refusal
	}{
		{1, 1, 1, ""},
		{2, 2, 1, ""},
		{2, 1, 1, "min.insync.replicas is 1, must be 2 or more"},
		{2, 1, 2, "min.insync.replicas is 1, must be 2 or more"},
		{3, 1, 3, "min.insync.replicas is 1, must be 2 or more"},
		{3, 2, 3, ""},
		{1, 1, 3, "replicas is 1, must be 3 or more (kafka.replication)"},
		{2, 2, 3, "replicas is 2, must be 3 or more (kafka.replication)"},
	} {
		t.Run(fmt.Sprint(c.replicas, c.inSync, c.configured), func(t *testing.T) {
			cluster := fake(t, kfake.NumBrokers(3))
			spec := domain.TopicSpec{Topic: "qm.fleet", Partitions: 2}
			made := open(t, Config{Brokers: cluster.ListenAddrs(), Replication: c.replicas})
			config := made.newTopic(spec, false)
			for i := range config.ConfigEntries {
				if e := &config.ConfigEntries[i]; e.ConfigName == minInSync {
					e.ConfigValue = fmt.Sprint(c.inSync)
				}
			}
			res, err := made.client.CreateTopics(t.Context(), &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{config}})
			if err != nil || res.Errors["qm.fleet"] != nil {
				t.Fatal(res, err)
			}
			l := open(t, Config{Brokers: cluster.ListenAddrs(), Replication: c.configured})
			var got string
			if err := l.CheckTopics(t.Context(), []domain.TopicSpec{spec}); err != nil {
				got = err.Error()
			}
			if want := c.want; want == "" && got != "" || want != "" && got != "check topics: topic qm.fleet: "+want && got != "topic qm.fleet: "+want {
				t.Errorf("%q, want %q", got, want)
			}
			ds, err := l.Durabilities(t.Context(), []domain.TopicSpec{spec})
			if want := (Durability{Topic: "qm.fleet", Replicas: c.replicas, InSync: c.inSync}); err != nil || len(ds) != 1 || ds[0] != want {
				t.Errorf("%+v, %v, want %+v", ds, err, want)
			}
		})
	}
}

// Apache Kafka reports when it flushes to disk: never, unless configured.
func TestDurabilityOfKafka(t *testing.T) {
	brokers := os.Getenv("QM_KAFKA_BROKERS")
	if brokers == "" {
		t.Skip("QM_KAFKA_BROKERS names no Apache Kafka")
	}
	l := open(t, Config{Brokers: strings.Split(brokers, ",")})
	spec := domain.TopicSpec{Topic: newTopic(t, l, 1), Partitions: 1}
	for _, want := range []int64{math.MaxInt64, 1} {
		if want == 1 {
			res, err := l.client.AlterConfigs(t.Context(), &kafkago.AlterConfigsRequest{Resources: []kafkago.AlterConfigRequestResource{{
				ResourceType: kafkago.ResourceTypeTopic, ResourceName: string(spec.Topic),
				Configs: []kafkago.AlterConfigRequestConfig{{Name: flushMessages, Value: "1"}},
			}}})
			if err != nil {
				t.Fatal(res, err)
			}
		}
		until(t, func() bool {
			ds, err := l.Durabilities(t.Context(), []domain.TopicSpec{spec})
			if err != nil || len(ds) != 1 || ds[0].Replicas != 1 || ds[0].InSync != 1 {
				t.Fatalf("%+v, %v", ds, err)
			}
			return ds[0].FlushMessages == want && ds[0].FlushMs == math.MaxInt64 && ds[0].Flushed() == (want == 1)
		})
	}
}

// A broker that becomes unreachable is only an error.
func TestDurabilityUnanswered(t *testing.T) {
	c := fake(t)
	l := openFake(t, c)
	spec := domain.TopicSpec{Topic: newTopic(t, l, 1), Partitions: 1}
	c.Close()
	l.cfg.Patience = time.Millisecond
	if ds, err := l.Durabilities(t.Context(), []domain.TopicSpec{spec}); err == nil || len(ds) > 0 {
		t.Errorf("got %v, %v", ds, err)
	}
}
