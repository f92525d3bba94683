package podresources

import (
	"fmt"
	"strconv"
	"strings"

	"quartermaster/domain"
)

// Device is a parsed device id: a UUID, or an index of the device.
type Device struct {
	UUID domain.GPUID // of the GPU or MIG device; zero if Index identifies it
	MIG  bool
	// Index is the driver's index of the GPU, if UUID is zero. With Minor it is the N of its
	// /dev/nvidiaN instead, which may differ.
	Index uint32
	Minor bool
	// GPUInstance and ComputeInstance identify the MIG device of that GPU, if MIG is set and they
	// are known.
	GPUInstance, ComputeInstance uint32
	// Within means that UUID is the UUID of the GPU, and the two instances identify its MIG device.
	Within  bool
	Replica uint32 // time-slice replica of the device, from 1; 0: the whole device
}

// maxDeviceID is the length of the longest id in bytes.
const maxDeviceID = 256

// ParseDevice parses a device id in one of these forms:
//
//	GPU-5a1c…                  NVIDIA's device plugin
//	MIG-5a1c…                  a MIG device; MIG-GPU-5a1c…/1/0 in old drivers
//	GPU-5a1c…::2, MIG-…::2     time-slice replica 2 of a device
//	0, 0:1, 0:1::2             the plugin's ids by index: GPU, its MIG device
//	nvidia0, nvidia0/gi1       GKE: the name of the device file
//	nvidia0/vgpu1, nvidia0/gi1/vgpu0
//	gpu-0, gpu-0-mig-…         NVIDIA's driver of resource claims
//
// Replicas count from 0 in an id and from 1 in a [Device].
func ParseDevice(id string) (Device, error) {
	var d Device
	bad := func(why string) (Device, error) {
		return Device{}, fmt.Errorf("device id %.80q: %s", id, why)
	}
	if len(id) > maxDeviceID {
		return bad("it is too long")
	}
	rest, share, shared := strings.Cut(id, "::")
	if shared {
		n, ok := small(share)
		if !ok {
			return bad("its share is not a number")
		}
		d.Replica = n + 1
	}
	switch {
	case strings.HasPrefix(rest, "MIG-GPU-"):
		gpu, place, ok := strings.Cut(strings.TrimPrefix(rest, "MIG-"), "/")
		gi, ci, both := strings.Cut(place, "/")
		var err error
		if d.UUID, err = domain.ParseGPUID(gpu); !ok || !both || err != nil {
			return bad("want MIG-GPU-UUID/GI/CI")
		}
		if d.GPUInstance, ok = small(gi); !ok {
			return bad("its GPU instance is not a number")
		}
		if d.ComputeInstance, ok = small(ci); !ok {
			return bad("its compute instance is not a number")
		}
		d.MIG, d.Within = true, true
		return d, nil
	case strings.HasPrefix(rest, "GPU-"), strings.HasPrefix(rest, "MIG-"):
		var err error
		if d.UUID, err = domain.ParseGPUID(rest); err != nil {
			return bad("it has no valid UUID")
		}
		d.MIG = rest[0] == 'M'
		return d, nil
	case strings.HasPrefix(rest, "nvidia"):
		if shared {
			return bad("in this form the share follows /vgpu")
		}
		for i, part := range strings.Split(rest, "/") {
			ok := false
			switch {
			case i == 0:
				d.Index, ok = after(part, "nvidia")
				d.Minor = true
			case i == 1 && strings.HasPrefix(part, "gi"):
				d.GPUInstance, ok = after(part, "gi")
				d.MIG = true
			case d.Replica == 0 && i <= 2:
				d.Replica, ok = after(part, "vgpu")
				d.Replica++
			}
			if !ok {
				return bad("want nvidiaN, nvidiaN/giN, nvidiaN/vgpuN or nvidiaN/giN/vgpuN")
			}
		}
		return d, nil
	case strings.HasPrefix(rest, "gpu-"):
		gpu, mig, cut := strings.Cut(strings.TrimPrefix(rest, "gpu-"), "-mig-")
		n, ok := small(gpu)
		if !ok || cut && mig == "" || shared {
			return bad("want gpu-N or gpu-N-mig-PLACE")
		}
		d.Index, d.MIG = n, cut
		if cut {
			return bad("only the driver of resource claims knows which MIG device it is")
		}
		return d, nil
	}
	gpu, mig, cut := strings.Cut(rest, ":")
	n, ok := small(gpu)
	if !ok {
		return bad("its form is unknown")
	}
	d.Index = n
	if cut {
		// The plugin counts the MIG devices of a GPU from 0.
		if d.GPUInstance, ok = small(mig); !ok {
			return bad("its MIG device is not a number")
		}
		return bad("it names a MIG device by number, which only the plugin knows; set the plugin's deviceIDStrategy to uuid")
	}
	return d, nil
}

func after(s, prefix string) (uint32, bool) {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok {
		return 0, false
	}
	return small(rest)
}

// small parses a number of at most four digits, without leading zeros.
func small(s string) (uint32, bool) {
	if len(s) == 0 || len(s) > 4 || s[0] == '+' || len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil
}
