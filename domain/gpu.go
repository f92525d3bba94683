package domain

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// GPUID is the UUID of a GPU or MIG instance as NVIDIA's driver assigns it.
type GPUID [16]byte

// String returns the driver's form, for example
// "GPU-5a1c0d6e-0000-4000-8000-000000000001", "" for the zero id.
func (id GPUID) String() string {
	if id == (GPUID{}) {
		return ""
	}
	var b [40]byte
	copy(b[:], "GPU-")
	hex.Encode(b[4:12], id[0:4])
	b[12] = '-'
	hex.Encode(b[13:17], id[4:6])
	b[17] = '-'
	hex.Encode(b[18:22], id[6:8])
	b[22] = '-'
	hex.Encode(b[23:27], id[8:10])
	b[27] = '-'
	hex.Encode(b[28:40], id[10:16])
	return string(b[:])
}

// MarshalText writes what [GPUID.String] returns.
func (id GPUID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what [ParseGPUID] reads, or "" for the zero id.
func (id *GPUID) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*id = GPUID{}
		return nil
	}
	v, err := ParseGPUID(string(b))
	if err != nil {
		return err
	}
	*id = v
	return nil
}

// ParseGPUID reads "GPU-" or "MIG-" followed by a UUID, or the UUID alone.
func ParseGPUID(s string) (GPUID, error) {
	var id GPUID
	u := strings.TrimPrefix(strings.TrimPrefix(s, "GPU-"), "MIG-")
	if len(u) != 36 || u[8] != '-' || u[13] != '-' || u[18] != '-' || u[23] != '-' {
		return id, fmt.Errorf("GPU id %q is not a UUID such as GPU-5a1c0d6e-1111-4222-8333-444455556666", s)
	}
	b, err := hex.DecodeString(strings.ReplaceAll(u, "-", ""))
	if err != nil || len(b) != 16 {
		return id, fmt.Errorf("GPU id %q is not a UUID: it has digits that are not hexadecimal", s)
	}
	copy(id[:], b)
	if id == (GPUID{}) {
		return id, fmt.Errorf("GPU id %q is all zero", s)
	}
	return id, nil
}

// DeriveGPUID makes an id for a device whose source names only its node and index: an RFC 9562
// version 8 UUID of a SHA-256. Declarations mark such ids as derived.
func DeriveGPUID(cluster, node string, index int) GPUID {
	h := sha256.Sum256(fmt.Appendf(nil, "quartermaster gpu %q %q %d", cluster, node, index))
	var id GPUID
	copy(id[:], h[:16])
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return id
}
