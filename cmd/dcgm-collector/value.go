//go:build cgo && linux

package main

import (
	"math"
	"strings"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"

	frames "quartermaster/adapters/dcgm"
)

// What DCGM returns, of which this program must tell apart (dcgm_structs.h).
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

// blank says what a mark for "no value" means, by its distance from the first.
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

// value is the number that DCGM gave, or why there is none. Now is the time by this
// host's clock, which is DCGM's; every is how often the field is measured, 0 for one
// whose age says nothing.
func value(v *dcgm.FieldValue_v2, now time.Time, every time.Duration) (frames.Status, float64) {
	// The status comes first: the rest of a value that has none is left over from others.
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
		// Narrower marks reach wider fields. A counter can rightly stand there.
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

// text is a string that DCGM gave, "" where it gave none.
func text(v *dcgm.FieldValue_v2) string {
	if v.Status != 0 || v.FieldType != dcgm.DCGM_FT_STRING || v.StringValue == nil {
		return ""
	}
	return plain(*v.StringValue)
}

// plain is s without the marks of DCGM and without what no event may hold.
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
