package embedded

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// reader answers requests from the files of a log, as of its opening.
type reader struct {
	path  string // the data directory
	id    string
	cause error // why appends are refused
	cfg   Config
	log   *slog.Logger

	ctx    context.Context // ends with close
	cancel context.CancelFunc

	mu     sync.Mutex
	topics map[string]*readTopic
}

// readTopic is a topic with all its partitions. An empty partition has no segments.
type readTopic struct {
	partitions []*partition
	configs    map[string]string
}

const (
	// maxAnswer is the maximum size of an answer to Fetch, except for a single larger batch.
	maxAnswer = 8 << 20
	// pending is the number of requests of a connection that may wait for their answers.
	pending = 16
	// looks is the number of attempts before apparent damage is reported as damage, because an
	// owner may change the files meanwhile.
	looks = 3
)

func newReader(ctx context.Context, cfg Config, d *directory, cause error) (_ *reader, r Report, err error) {
	id, err := d.knownIdentity()
	if err != nil {
		return nil, r, fmt.Errorf("open log %s to read it (%w): %w", d.path, cause, err)
	}
	_, statErr := os.Stat(filepath.Join(d.path, stoppedFile))
	r.Clean = statErr == nil
	began := time.Now()
	var topics []topic
	var parts []*partition
	for look := 1; ; look++ {
		topics, parts, err = survey(ctx, filepath.Join(d.path, logDir))
		var damage *DamageError
		moved := errors.As(err, &damage) || errors.Is(err, os.ErrNotExist) || errors.Is(err, io.EOF)
		if err == nil {
			break
		}
		if !moved || look == looks {
			return nil, r, fmt.Errorf("open log %s to read it (%w): %w", d.path, cause, err)
		}
	}
	rd := &reader{
		path:   d.path,
		id:     id,
		cause:  cause,
		cfg:    cfg,
		log:    cfg.Log,
		topics: make(map[string]*readTopic, len(topics)),
	}
	rd.ctx, rd.cancel = context.WithCancel(context.Background())
	r.Topics = len(topics)
	for _, t := range topics {
		rd.topics[t.Name] = newReadTopic(t.Partitions, t.Configs)
	}
	for _, p := range parts {
		p.leaveTail(&r)
		r.count(p)
		rd.topics[p.topic].partitions[p.number] = p
	}
	r.Scan = time.Since(began)
	return rd, r, nil
}

func newReadTopic(partitions int, configs map[string]string) *readTopic {
	t := &readTopic{configs: configs}
	for range partitions {
		t.partitions = append(t.partitions, &partition{})
	}
	return t
}

// leaveTail ignores and reports the bytes after the last complete batch.
func (p *partition) leaveTail(r *Report) {
	n := len(p.segments)
	if n == 0 {
		return
	}
	last := p.segments[n-1]
	if last.fault != "" {
		r.Unfinished = append(r.Unfinished, Trim{File: last.file, Topic: p.topic, Partition: p.number,
			Position: last.good, Bytes: last.size - last.good, LastOffset: last.next - 1, Reason: last.fault})
	}
	if last.good == 0 {
		p.segments = p.segments[:n-1]
	}
}

func (r *reader) refusal() error {
	return fmt.Errorf("%w: %s: %w", ErrReadOnly, r.path, r.cause)
}

func (r *reader) close() { r.cancel() }

// dial returns a connection that this process serves.
func (r *reader) dial() net.Conn {
	client, server := net.Pipe()
	go r.serve(server)
	return client
}

// serve answers the requests of a connection in their order until it ends.
func (r *reader) serve(c net.Conn) {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	defer c.Close()
	// A client may send its next request before it reads the last answer, and the pipe has no
	// buffer.
	frames := make(chan []byte, pending)
	go func() {
		defer cancel()
		for {
			frame, err := r.readFrame(c)
			if err != nil {
				return
			}
			select {
			case frames <- frame:
			case <-ctx.Done():
				return
			}
		}
	}()
	s := &session{reader: r, ctx: ctx}
	for {
		select {
		case <-ctx.Done():
			return
		case frame := <-frames:
			answer, err := s.answer(frame)
			if err == nil {
				_, err = c.Write(answer)
			}
			if err != nil {
				r.log.Warn("connection dropped", "reason", err)
				return
			}
		}
	}
}

func (r *reader) readFrame(c net.Conn) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	size := int64(int32(binary.BigEndian.Uint32(head[:])))
	if size < 10 || size > int64(max(r.cfg.MaxFrame, otherFrame)) {
		err := fmt.Errorf("request of %d bytes", size)
		r.log.Warn("connection dropped", "reason", err)
		return nil, err
	}
	frame := make([]byte, 4+size)
	copy(frame, head[:])
	_, err := io.ReadFull(c, frame[4:])
	return frame, err
}

// session is one connection; its buffers are reused from answer to answer.
type session struct {
	*reader
	ctx      context.Context
	set, out []byte
}

// readerKeys are the supported requests with their first supported version: those for reading, and
// those that are answered with a refusal to append.
var readerKeys = map[kmsg.Key]int16{
	kmsg.Produce: 3, kmsg.Fetch: 4, kmsg.ListOffsets: 1, kmsg.Metadata: 1,
	kmsg.ApiVersions: 0, kmsg.CreateTopics: 0, kmsg.DescribeConfigs: 0,
}

// answer returns the answer to a request. It is valid until the next call.
func (s *session) answer(frame []byte) ([]byte, error) {
	key := int16(binary.BigEndian.Uint16(frame[4:]))
	version := int16(binary.BigEndian.Uint16(frame[6:]))
	least, known := readerKeys[kmsg.Key(key)]
	top, _ := versions.LookupMaxKeyVersion(key)
	switch {
	case !known:
		return nil, fmt.Errorf("request %d (%s) is not served in read-only mode", key, kmsg.NameForKey(key))
	case key == apiVersions && version > top:
		return encode(frame, unknownVersion(key, top)), nil
	case version < least || version > top:
		return nil, fmt.Errorf("request %s version %d, %d to %d are served", kmsg.NameForKey(key), version, least, top)
	}
	body, err := skipClientID(frame)
	if err != nil {
		return nil, err
	}
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	if err := req.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("request %s version %d is malformed: %w", kmsg.NameForKey(key), version, err)
	}
	var resp kmsg.Response
	switch req := req.(type) {
	case *kmsg.ProduceRequest:
		resp, err = s.produce(req)
	case *kmsg.FetchRequest:
		resp = s.fetch(req)
	case *kmsg.ListOffsetsRequest:
		resp = s.listOffsets(req)
	case *kmsg.MetadataRequest:
		resp = s.metadata(req)
	case *kmsg.ApiVersionsRequest:
		resp = s.apiVersions(req)
	case *kmsg.CreateTopicsRequest:
		resp = s.createTopics(req)
	case *kmsg.DescribeConfigsRequest:
		resp = s.describeConfigs(req)
	}
	if err != nil {
		return nil, err
	}
	s.out = encodeTo(s.out[:0], frame, resp)
	return s.out, nil
}

// produce refuses the append.
func (s *session) produce(req *kmsg.ProduceRequest) (kmsg.Response, error) {
	why := fmt.Sprintf("append refused: %v", s.refusal())
	if req.Acks == 0 {
		return nil, errors.New(why) // the client wants no answer
	}
	var all []appended
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			all = append(all, appended{topicPartition: topicPartition{t.Topic, p.Partition}})
		}
	}
	return refuseProduce(all, req.Version, kerr.PolicyViolation.Code, why), nil
}

// partition returns a partition, or nil if it does not exist.
func (r *reader) partition(topic string, number int32) *partition {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.topics[topic]
	if t == nil || number < 0 || int(number) >= len(t.partitions) {
		return nil
	}
	return t.partitions[number]
}

func (s *session) fetch(req *kmsg.FetchRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	s.set = s.set[:0]
	waiting := true
	for _, rt := range req.Topics {
		t := kmsg.NewFetchResponseTopic()
		t.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition = rp.Partition
			p.HighWatermark, p.LastStableOffset, p.LogStartOffset = -1, -1, -1
			p.RecordBatches = []byte{} // some clients treat null as damage
			part := s.partition(rt.Topic, rp.Partition)
			switch {
			case part == nil:
				p.ErrorCode = kerr.UnknownTopicOrPartition.Code
			case rp.CurrentLeaderEpoch > 0:
				p.ErrorCode = kerr.UnknownLeaderEpoch.Code // the epoch is always 0
			default:
				p.HighWatermark, p.LastStableOffset, p.LogStartOffset = part.end(), part.end(), part.start
				if rp.FetchOffset < part.start || rp.FetchOffset > part.end() {
					p.ErrorCode = kerr.OffsetOutOfRange.Code
					break
				}
				limit := min(req.MaxBytes, rp.PartitionMaxBytes, maxAnswer) - int32(min(len(s.set), maxAnswer))
				if rp.FetchOffset < part.end() && (len(s.set) == 0 || limit > 0) {
					from := len(s.set)
					var err error
					if s.set, err = part.read(s.set, rp.FetchOffset, int64(limit)); err != nil {
						s.log.Warn("read log", "error", err)
						p.ErrorCode = kerr.CorruptMessage.Code
						s.set = s.set[:from]
					}
					p.RecordBatches = s.set[from:]
				}
			}
			waiting = waiting && p.ErrorCode == 0
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	if waiting && len(s.set) == 0 && req.MinBytes > 0 { // wait in vain: a reader gets no new records
		select {
		case <-s.ctx.Done():
		case <-time.After(time.Duration(req.MaxWaitMillis) * time.Millisecond):
		}
	}
	return resp
}

const (
	latestOffset   = -1
	earliestOffset = -2
)

func (s *session) listOffsets(req *kmsg.ListOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, rt := range req.Topics {
		t := kmsg.NewListOffsetsResponseTopic()
		t.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			p := kmsg.NewListOffsetsResponseTopicPartition()
			p.Partition = rp.Partition
			part := s.partition(rt.Topic, rp.Partition)
			switch {
			case part == nil:
				p.ErrorCode = kerr.UnknownTopicOrPartition.Code
			case rp.Timestamp == latestOffset:
				p.Offset, p.LeaderEpoch = part.end(), 0
			case rp.Timestamp == earliestOffset:
				p.Offset, p.LeaderEpoch = part.start, 0
			case rp.Timestamp < 0:
				p.ErrorCode = kerr.UnsupportedVersion.Code
			default:
				offset, at, err := part.since(rp.Timestamp)
				if err != nil {
					s.log.Warn("read log", "error", err)
					p.ErrorCode = kerr.CorruptMessage.Code
				} else if offset >= 0 {
					p.Offset, p.Timestamp, p.LeaderEpoch = offset, at, 0
				}
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (s *session) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	host, port := advertisedHost, int32(advertisedPort)
	resp.Brokers = []kmsg.MetadataResponseBroker{{Host: host, Port: port}}
	resp.ClusterID = &s.id
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	if req.Topics == nil {
		names = sortedNames(s.topics)
	}
	for _, t := range req.Topics {
		if t.Topic != nil {
			names = append(names, *t.Topic)
		}
	}
	for _, name := range names {
		t := kmsg.NewMetadataResponseTopic()
		t.Topic = &name
		if known := s.topics[name]; known == nil {
			t.ErrorCode = kerr.UnknownTopicOrPartition.Code
		} else {
			for i := range known.partitions {
				p := kmsg.NewMetadataResponseTopicPartition()
				p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR = int32(i), 0, 0, []int32{0}, []int32{0}
				t.Partitions = append(t.Partitions, p)
			}
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (s *session) apiVersions(req *kmsg.ApiVersionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	for _, key := range sortedNames(readerKeys) {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion = int16(key), readerKeys[key]
		k.MaxVersion, _ = versions.LookupMaxKeyVersion(int16(key))
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	return resp
}

// createTopics creates empty topics that exist only in this reader.
func (s *session) createTopics(req *kmsg.CreateTopicsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rt := range req.Topics {
		t := kmsg.NewCreateTopicsResponseTopic()
		t.Topic = rt.Topic
		switch {
		case s.topics[rt.Topic] != nil:
			t.ErrorCode = kerr.TopicAlreadyExists.Code
		case rt.NumPartitions < 1 || rt.NumPartitions > maxPartitions:
			t.ErrorCode = kerr.InvalidPartitions.Code
		case !req.ValidateOnly:
			configs := make(map[string]string)
			for _, c := range rt.Configs {
				if c.Value != nil {
					configs[c.Name] = *c.Value
				}
			}
			s.topics[rt.Topic] = newReadTopic(int(rt.NumPartitions), configs)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

// always are the default settings of topics; see allowedConfig.
var always = map[string]string{
	"cleanup.policy":         "delete",
	"retention.ms":           "-1",
	"retention.bytes":        "-1",
	"message.timestamp.type": "CreateTime",
	"min.insync.replicas":    "1",
	"max.message.bytes":      "1048588",
}

func (s *session) describeConfigs(req *kmsg.DescribeConfigsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rr := range req.Resources {
		r := kmsg.NewDescribeConfigsResponseResource()
		r.ResourceType, r.ResourceName = rr.ResourceType, rr.ResourceName
		t := s.topics[rr.ResourceName]
		switch {
		case rr.ResourceType != kmsg.ConfigResourceTypeTopic:
			r.ErrorCode = kerr.InvalidRequest.Code
		case t == nil:
			r.ErrorCode = kerr.UnknownTopicOrPartition.Code
		default:
			configs := maps.Clone(always)
			maps.Copy(configs, t.configs)
			for _, name := range sortedNames(configs) {
				if rr.ConfigNames != nil && !slices.Contains(rr.ConfigNames, name) {
					continue
				}
				c := kmsg.NewDescribeConfigsResponseResourceConfig()
				c.Name, c.Value = name, kmsg.StringPtr(configs[name])
				c.Source = kmsg.ConfigSourceDynamicTopicConfig
				r.Configs = append(r.Configs, c)
			}
		}
		resp.Resources = append(resp.Resources, r)
	}
	return resp
}

func sortedNames[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
