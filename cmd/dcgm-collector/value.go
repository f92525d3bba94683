//go:build cgo && linux

package main

import (
	"math"
	"strings"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"

	frames "quartermaster/adapters/dcgm"
)

// Return codes of DCGM that this program distinguishes (dcgm_structs.h), and bounds on values.
const (
	stBadParam         = -1
	stNotSupported     = -6
	stUnknownField     = -13
	stNoData           = -14
	stStale            = -15
	stNotWatched       = -16
	stNoPermission     = -17
	stLost             = -18
	stConnection       = -21
	stGPUNotSupported  = -22
	stNoLibrary        = -25
	stRequiresRoot     = -29
	stModuleNotLoaded  = -33
	stNoProfiling      = -36
	stInsufficient     = -44
	stNVMLNotLoaded    = -56
	stDriverTimeout    = -57
	stVersionMismatch  = -12
	int64Blank         = 0x7ffffffffffffff0
	int32Blank         = 0x7ffffff0
	uint32Blank        = 0xfffffff0
	doubleBlank        = 1 << 47
	mostExact          = 1 << 53
	blankKinds         = 4 // blank, not found, not supported, not permitted
	slackOfClocks      = 2 * time.Second
	intervalsUntilOld  = 3
	mostRatio          = 1.05 // ratios a little above 1 are rounding
	firstRatio         = 1001
	lastRatio          = 1012
	fieldEnergy        = 156
	firstNVLinkCounter = 400
	lastNVLinkCounter  = 499
)

func statusOf(code int) frames.Status {
	switch code {
	case 0:
		return frames.StatusOK
	case stNotSupported, stUnknownField, stGPUNotSupported, stModuleNotLoaded, stNoProfiling, stInsufficient:
		return frames.StatusUnsupported
	case stNoPermission, stRequiresRoot:
		return frames.StatusRefused
	case stNoData, stNotWatched:
		return frames.StatusAbsent
	case stStale:
		return frames.StatusStale
	case stLost:
		return frames.StatusLost
	}
	return frames.StatusFailed
}

// blank returns the meaning of a "no value" code by its offset from the first one.
func blank(kind int64) frames.Status {
	switch kind {
	case 1:
		return frames.StatusAbsent
	case 2:
		return frames.StatusUnsupported
	case 3:
		return frames.StatusRefused
	}
	return frames.StatusBlank
}

// value returns the number of a DCGM value, or a status that says why there is none. now is this
// host's time, which DCGM uses too. every is the interval at which the field is measured, or 0 if
// its age does not matter.
func value(v *dcgm.FieldValue_v2, now time.Time, every time.Duration) (frames.Status, float64) {
	// Check the status first: if it is bad, the rest of the value is left over from others.
	if s := statusOf(v.Status); s != frames.StatusOK {
		return s, 0
	}
	if every > 0 {
		if v.TS == 0 {
			return frames.StatusAbsent, 0
		}
		if now.Sub(time.UnixMicro(v.TS)) > intervalsUntilOld*every+slackOfClocks {
			return frames.StatusStale, 0
		}
	}
	switch v.FieldType {
	case dcgm.DCGM_FT_INT64:
		n := v.Int64()
		if n >= int64Blank {
			return blank(n - int64Blank), 0
		}
		// Codes of narrower types occur in wider fields. A counter can have such a value
		// legitimately.
		counter := v.FieldID == fieldEnergy || v.FieldID >= firstNVLinkCounter && v.FieldID <= lastNVLinkCounter
		for _, first := range []int64{int32Blank, uint32Blank} {
			if !counter && n >= first && n < first+blankKinds {
				return blank(n - first), 0
			}
		}
		if n > mostExact || n < -mostExact {
			return frames.StatusBlank, 0
		}
		return frames.StatusOK, float64(n)
	case dcgm.DCGM_FT_DOUBLE:
		f := v.Float64()
		switch {
		case math.IsNaN(f) || math.IsInf(f, 0):
			return frames.StatusBlank, 0
		case f >= doubleBlank:
			if kind := f - doubleBlank; kind < blankKinds {
				return blank(int64(kind)), 0
			}
			return frames.StatusBlank, 0
		case v.FieldID >= firstRatio && v.FieldID <= lastRatio:
			if f < 0 || f > mostRatio {
				return frames.StatusBlank, 0
			}
			return frames.StatusOK, min(f, 1)
		}
		return frames.StatusOK, f
	}
	return frames.StatusFailed, 0
}

// text returns the string of a DCGM value, or "".
func text(v *dcgm.FieldValue_v2) string {
	if v.Status != 0 || v.FieldType != dcgm.DCGM_FT_STRING || v.StringValue == nil {
		return ""
	}
	return plain(*v.StringValue)
}

// plain removes DCGM's placeholder texts, and characters that are not valid in an event.
func plain(s string) string {
	s = strings.ToValidUTF8(s, "")
	if strings.HasPrefix(s, "<<<") && strings.Contains(s, ">>>") {
		return ""
	}
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}
