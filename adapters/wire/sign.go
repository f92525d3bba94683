package wire

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"

	"quartermaster/domain"
)

// signaturePrefix distinguishes these signatures from all others that the same key may ever make.
const signaturePrefix = "quartermaster decision v1\n"

// signedAttributes are the attributes that a signature covers, in the order in which it covers
// them. They say what was decided, by whom, about what and when.
var signedAttributes = [...]attribute{
	attrType, attrOperator, attrOperatorKey, attrTime, attrRecorded,
	attrSubject, attrWorkspace, attrCluster, attrCites,
}

// signedMessage returns the bytes that are signed: the prefix, then the text of
// each header in signedAttributes (empty when absent) and the payload, each
// after its length as 8 bytes, big endian.
func signedMessage(a *attributes, payload []byte) []byte {
	size := len(signaturePrefix) + 8 + len(payload)
	for _, i := range signedAttributes {
		size += 8 + len(a[i])
	}
	b := make([]byte, 0, size)
	b = append(b, signaturePrefix...)
	for _, i := range signedAttributes {
		b = binary.BigEndian.AppendUint64(b, uint64(len(a[i])))
		b = append(b, a[i]...)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(len(payload)))
	return append(b, payload...)
}

// Sign sets the event's signature, made with the operator's key. Event, time, recorded time,
// subject, workspace, cluster and cites MUST have their final values. Source, incarnation and
// sequence are set later, when the event is appended. Sign fails if the event cannot be encoded,
// and for NodeSampled.
func Sign(env *domain.Envelope, operator string, key ed25519.PrivateKey) error {
	if len(key) != ed25519.PrivateKeySize {
		return fmt.Errorf("sign %s: private key of %d bytes, want %d", nameOf(env.Event), len(key), ed25519.PrivateKeySize)
	}
	if err := ToSign(env, operator, key.Public().(ed25519.PublicKey)); err != nil {
		return err
	}
	env.Signature.Bytes = ed25519.Sign(key, env.Signature.Message)
	return nil
}

// ToSign is [Sign] for a private key that is elsewhere. It sets the event's signature without its
// Bytes, which are the Ed25519 signature of env.Signature.Message.
func ToSign(env *domain.Envelope, operator string, key ed25519.PublicKey) error {
	err := toSign(env, operator, key)
	if err != nil {
		return fmt.Errorf("sign %s: %w", nameOf(env.Event), err)
	}
	return nil
}

func toSign(env *domain.Envelope, operator string, key ed25519.PublicKey) error {
	switch {
	case env.Event == nil:
		return fmt.Errorf("%w: it holds no event", domain.ErrIncomplete)
	case env.Event.Type() == domain.TypeNodeSampled:
		return errors.New("a sample is not signed")
	case env.Time <= 0:
		return fmt.Errorf("%w: time is not given", domain.ErrIncomplete)
	case operator == "":
		return fmt.Errorf("%w: no operator", domain.ErrIncomplete)
	case len(key) != ed25519.PublicKeySize:
		return fmt.Errorf("public key of %d bytes, want %d", len(key), ed25519.PublicKeySize)
	}
	body, err := payload(env.Event)
	if err != nil {
		return err
	}
	signed := *env
	signed.Signature = &domain.Signature{Operator: operator, Key: key}
	attrs := attributesOf(&signed)
	signed.Signature.Message = signedMessage(&attrs, body)
	env.Signature = signed.Signature
	return nil
}

// ErrMessage means that bytes are not those that a decision is signed over.
var ErrMessage = errors.New("these are not the bytes of a decision")

// ReadSigned returns the event whose signature covers a message, with a signature that lacks its Bytes. It is the
// inverse of [ToSign]: it accepts a message only if ToSign makes it of the event, byte for byte. Source, incarnation and
// sequence are not part of a message. An error wraps [ErrMessage].
func ReadSigned(message []byte) (*domain.Envelope, error) {
	env, err := readSigned(message)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return env, nil
}

func readSigned(message []byte) (*domain.Envelope, error) {
	rest, ok := bytes.CutPrefix(message, []byte(signaturePrefix))
	if !ok {
		return nil, errors.New("they do not begin as such")
	}
	next := func(most int) ([]byte, error) {
		if len(rest) < 8 {
			return nil, errors.New("they end early")
		}
		n := binary.BigEndian.Uint64(rest)
		if rest = rest[8:]; n > uint64(len(rest)) || n > uint64(most) {
			return nil, fmt.Errorf("a field of %d bytes, of which %d are there, and at most %d are read", n, len(rest), most)
		}
		field := rest[:n]
		rest = rest[n:]
		return field, nil
	}
	var a attributes
	for _, i := range signedAttributes {
		text, err := next(maxAttribute)
		if err == nil {
			err = checkText(string(text), maxAttribute)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", headerNames[i], err)
		}
		a[i] = string(text)
	}
	body, err := next(maxRecord)
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	typ, err := parseType(a[attrType])
	if err != nil {
		return nil, err
	}
	if typ == domain.TypeNodeSampled {
		return nil, errors.New("a sample is not signed")
	}
	key, err := base64.StdEncoding.Strict().DecodeString(a[attrOperatorKey])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", headerNames[attrOperatorKey], err)
	}
	env := &domain.Envelope{Subject: a[attrSubject], Workspace: a[attrWorkspace], Cluster: a[attrCluster], Cites: a[attrCites]}
	if err := a.instant(attrTime, &env.Time); err != nil {
		return nil, err
	}
	if err := a.instant(attrRecorded, &env.Recorded); err != nil {
		return nil, err
	}
	env.Event = domain.NewEvent(typ)
	msg, move := bind(env.Event)
	if err := msg.UnmarshalVT(body); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	m := mover{decode: true}
	if move(&m); m.err != nil {
		return nil, m.err
	}
	if err := toSign(env, a[attrOperator], key); err != nil {
		return nil, err
	}
	if !bytes.Equal(env.Signature.Message, message) {
		return nil, errors.New("they are not written as this program writes them")
	}
	return env, nil
}
