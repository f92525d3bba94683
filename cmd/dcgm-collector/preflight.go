//go:build cgo && linux

package main

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

// The structure that dcgmVersionInfo fills, version 2 (dcgm_structs.h).
typedef struct { unsigned int version; char text[512]; } version_info;

static int version_of(void *f, version_info *v) {
	memset(v, 0, sizeof *v);
	v->version = (unsigned int)(sizeof *v | 2u << 24);
	return ((int (*)(version_info *))f)(v);
}

static const char *text_of(void *f, int code) { return ((const char *(*)(int))f)(code); }

static const char *path_of(void *lib) {
	struct link_map *m = NULL;
	return dlinfo(lib, RTLD_DI_LINKMAP, &m) == 0 && m ? m->l_name : "";
}
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"
	"golang.org/x/sys/unix"

	frames "quartermaster/adapters/dcgm"
)

const library = "libdcgm.so.4"

// symbols are the functions of DCGM that this program calls through go-dcgm. go-dcgm resolves them
// at the first call, and a missing one then ends the process.
var symbols = []string{
	"dcgmInit", "dcgmShutdown", "dcgmStartEmbedded", "dcgmStopEmbedded", "dcgmConnect_v2", "dcgmDisconnect",
	"dcgmGetEntityGroupEntities", "dcgmGetGpuStatus", "dcgmGetGpuInstanceHierarchy", "dcgmGetNvLinkLinkStatus",
	"dcgmGroupCreate", "dcgmGroupAddEntity", "dcgmGroupDestroy", "dcgmFieldGroupCreate", "dcgmFieldGroupDestroy",
	"dcgmWatchFields", "dcgmUnwatchFields", "dcgmUpdateAllFields", "dcgmEntitiesGetLatestValues",
	"dcgmGetValuesSince_v2", "dcgmHealthSet", "dcgmHealthCheck", "dcgmVersionInfo", "errorString",
}

// loaded is a library that has all required functions.
type loaded struct {
	path, version string
	codes         map[string]int32 // return codes by the library's text for them
}

// claimOutput reserves standard output for frames. Whatever a library prints there goes to standard
// error from now on.
func claimOutput() (*os.File, error) {
	fd, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("standard output is not open: %v", err)
	}
	if err := unix.Dup3(2, 1, 0); err != nil {
		return nil, fmt.Errorf("redirect standard output: %v", err)
	}
	return os.NewFile(uintptr(fd), "frames"), nil
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func open(name string) (unsafe.Pointer, string) {
	// dlerror is per thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	lib := C.dlopen(c, C.RTLD_LAZY|C.RTLD_GLOBAL)
	if lib != nil {
		return lib, ""
	}
	return nil, C.GoString(C.dlerror())
}

func lookup(lib unsafe.Pointer, name string) unsafe.Pointer {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return C.dlsym(lib, c)
}

func newFatal(code, format string, args ...any) *fatal {
	return &fatal{frames.Trouble{Code: code, Text: fmt.Sprintf(format, args...), Fatal: true}}
}

// load opens the library and looks up every function, so that no later call can end the process.
// The library stays open.
func load() (*loaded, error) {
	lib, why := open(library)
	if lib == nil {
		if strings.Contains(why, "ermission denied") {
			return nil, newFatal(frames.TroublePermission, "open %s: %s: give this user the right to read the library", library, why)
		}
		for _, old := range []string{"libdcgm.so.3", "libdcgm.so.2"} {
			if l, _ := open(old); l != nil {
				return nil, newFatal(frames.TroubleVersion,
					"this node has %s, and DCGM 4 (%s) is needed: install the package datacenter-gpu-manager-4-core",
					old, library)
			}
		}
		if strings.Contains(why, "No such file") && strings.HasPrefix(why, library+":") {
			return nil, newFatal(frames.TroubleNoLibrary,
				"%s is not installed: install the package datacenter-gpu-manager-4-core, or name its folder in LD_LIBRARY_PATH",
				library)
		}
		return nil, newFatal(frames.TroubleNoLibrary, "%s does not load: %s", library, why)
	}
	l := &loaded{path: C.GoString(C.path_of(lib)), codes: map[string]int32{}}
	var missing []string
	for _, s := range symbols {
		if lookup(lib, s) == nil {
			missing = append(missing, s)
		}
	}
	if f := lookup(lib, "dcgmVersionInfo"); f != nil {
		var v C.version_info
		if code := C.version_of(f, &v); code == 0 {
			l.version = field(C.GoString(&v.text[0]), "version")
		}
		major, _ := strconv.Atoi(l.version[:max(0, strings.IndexByte(l.version, '.'))])
		if l.version != "" && major != 4 {
			return nil, newFatal(frames.TroubleVersion,
				"%s is of DCGM %s, and DCGM 4 is needed: install the package datacenter-gpu-manager-4-core",
				l.path, l.version)
		}
	}
	if len(missing) > 0 {
		return nil, newFatal(frames.TroubleSymbol, "%s (DCGM %s) lacks %s: install DCGM 4.2 or later of the 4 series",
			l.path, or(l.version, "unknown"), strings.Join(missing, ", "))
	}
	f := lookup(lib, "errorString")
	for code := int32(-1); code > -100; code-- {
		if text := C.text_of(f, C.int(code)); text != nil {
			if t := C.GoString(text); l.codes[t] == 0 {
				l.codes[t] = code
			}
		}
	}
	return l, nil
}

// code returns the DCGM code of a go-dcgm error. Some of these errors contain the code, the others
// only its text, at their end.
func (l *loaded) code(err error) int32 {
	var e *dcgm.Error
	if errors.As(err, &e) {
		return int32(e.Code)
	}
	text := err.Error()
	best, code := 0, int32(0)
	for t, c := range l.codes {
		if len(t) > best && strings.HasSuffix(text, t) {
			best, code = len(t), c
		}
	}
	if _, number, ok := strings.Cut(text, "failed with error code "); ok && code == 0 {
		if n, err := strconv.ParseInt(number, 10, 32); err == nil {
			code = int32(n)
		}
	}
	return code
}

// field returns one value of "name:value;name:value".
func field(text, name string) string {
	for part := range strings.SplitSeq(text, ";") {
		if k, v, ok := strings.Cut(part, ":"); ok && k == name {
			return v
		}
	}
	return ""
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
