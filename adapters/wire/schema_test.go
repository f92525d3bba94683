package wire

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"quartermaster/domain"
)

const schemaPackage = "quartermaster.events.v1"

// private are words in field names that would indicate users' prompts, model outputs or weights.
var private = map[string]bool{}

func init() {
	for w := range strings.FieldsSeq(`
		prompt prompts completion completions output outputs input inputs response responses answer answers
		question questions query queries message messages conversation conversations chat chats dialog
		content contents text texts body bodies token tokens logit logits logprob logprobs
		embedding embeddings vector vectors image images audio video transcript attachment
		weight weights gradient gradients tensor checkpoint activations dataset`) {
		private[w] = true
	}
}

// harmless are fields with such a word in their names that hold numbers.
var harmless = map[string]bool{
	"ServingSampled.prompt_tokens":     true, // a count
	"ServingSampled.generation_tokens": true, // a count
	"NodeSampled.tensor_active":        true, // busy share of the tensor cores
	"WorkspaceWeight.weight":           true, // of a shared cost
}

func suspicious(name string) bool {
	for w := range strings.SplitSeq(strings.ToLower(name), "_") {
		if private[w] {
			return true
		}
	}
	return false
}

func TestNothingPrivateHasAField(t *testing.T) {
	seen := 0
	protoregistry.GlobalFiles.RangeFilesByPackage(schemaPackage, func(file protoreflect.FileDescriptor) bool {
		for i := range file.Messages().Len() {
			m := file.Messages().Get(i)
			for j := range m.Fields().Len() {
				f := m.Fields().Get(j)
				seen++
				name := string(m.Name()) + "." + string(f.Name())
				if !suspicious(string(f.Name())) {
					continue
				}
				number := f.Kind() == protoreflect.Uint64Kind || f.Kind() == protoreflect.Uint32Kind
				if !harmless[name] || !number {
					t.Errorf("%s could hold a user's prompts, outputs or weights: no such thing may be stored", name)
				}
			}
		}
		return true
	})
	if seen < 400 {
		t.Errorf("%d fields were looked at, there are more", seen)
	}
	for _, name := range []string{"prompt", "model_output", "adapter_weights", "Completion", "chat_messages"} {
		if !suspicious(name) {
			t.Errorf("a field named %s would pass", name)
		}
	}
}

// Every event type has the message of its name. No other message stands alone: the rest are parts.
func TestEveryTypeHasItsMessage(t *testing.T) {
	parts := map[protoreflect.FullName]bool{}
	messages := map[protoreflect.FullName]bool{}
	protoregistry.GlobalFiles.RangeFilesByPackage(schemaPackage, func(file protoreflect.FileDescriptor) bool {
		for i := range file.Messages().Len() {
			m := file.Messages().Get(i)
			messages[m.FullName()] = true
			for j := range m.Fields().Len() {
				if part := m.Fields().Get(j).Message(); part != nil {
					parts[part.FullName()] = true
				}
			}
		}
		return true
	})
	for _, typ := range domain.Types() {
		name := protoreflect.FullName(schemaPackage + "." + string(typ))
		if !messages[name] {
			t.Errorf("%s has no message", typ)
		}
		delete(messages, name)
		if msg, _ := bind(domain.NewEvent(typ)); typ != domain.TypeNodeSampled && (msg == nil || msg.ProtoReflect().Descriptor().FullName() != name) {
			t.Errorf("%s is bound to %T", typ, msg)
		}
	}
	for name := range messages {
		if !parts[name] {
			t.Errorf("message %s belongs to no event", name)
		}
	}
}
