package podresources

import (
	"fmt"
	"strconv"
	"strings"

	"quartermaster/domain"
)

// Device is what the id of a device says: a UUID, or the place of the device.
type Device struct {
	UUID domain.GPUID // of the GPU or MIG device; zero where Index says which
	MIG  bool
	// Index is the GPU's, as the driver counts, where UUID is zero; with Minor it is the
	// number of its /dev/nvidiaN instead, which may be another.
	Index uint32
	Minor bool
	// GPUInstance is the MIG instance of that GPU, where MIG is set and it is known.
	GPUInstance, ComputeInstance uint32
	// Within says that UUID is the GPU's, and the two instances name the MIG device of it.
	Within  bool
	Replica uint32 // share of a device that several hold by turns, from 1; 0: all of it
}

// maxDeviceID bounds an id.
const maxDeviceID = 256

// ParseDevice reads the id of a device in the forms that are in use:
//
//	GPU-5a1c…                  NVIDIA's device plugin
//	MIG-5a1c…                  a MIG device; MIG-GPU-5a1c…/1/0 in old drivers
//	GPU-5a1c…::2, MIG-…::2     share 2 of a device that is shared by time
//	0, 0:1, 0:1::2             the plugin's ids by index: GPU, MIG device of it
//	nvidia0, nvidia0/gi1       GKE: the name of the device's file
//	nvidia0/vgpu1, nvidia0/gi1/vgpu0
//	gpu-0, gpu-0-mig-…         NVIDIA's driver of resource claims
//
// Shares count from 0 in an id and from 1 in a [Device].
func ParseDevice(id string) (Device, error) {
	var d Device
	bad := func(why string) (Device, error) {
		return Device{}, fmt.Errorf("device id %.80q: %s", id, why)
	}
	if len(id) > maxDeviceID {
		return bad("it is longer than any in use")
	}
	rest, share, shared := strings.Cut(id, "::")
	if shared {
		n, ok := small(share)
		if !ok {
			return bad("the number of its share is none")
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
			return bad("its GPU instance is no number")
		}
		if d.ComputeInstance, ok = small(ci); !ok {
			return bad("its compute instance is no number")
		}
		d.MIG, d.Within = true, true
		return d, nil
	case strings.HasPrefix(rest, "GPU-"), strings.HasPrefix(rest, "MIG-"):
		var err error
		if d.UUID, err = domain.ParseGPUID(rest); err != nil {
			return bad("it holds no UUID")
		}
		d.MIG = rest[0] == 'M'
		return d, nil
	case strings.HasPrefix(rest, "nvidia"):
		if shared {
			return bad("this form has its share behind /vgpu")
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
			return bad("which MIG device it is only the driver of resource claims knows")
		}
		return d, nil
	}
	gpu, mig, cut := strings.Cut(rest, ":")
	n, ok := small(gpu)
	if !ok {
		return bad("it is of no form in use")
	}
	d.Index = n
	if cut {
		// The plugin counts the MIG devices of a GPU from 0.
		if d.GPUInstance, ok = small(mig); !ok {
			return bad("the number of its MIG device is none")
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

// small reads a number as devices have it.
func small(s string) (uint32, bool) {
	if len(s) == 0 || len(s) > 4 || s[0] == '+' || len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil
}
