package highs

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"

	"quartermaster/domain/linear"
)

// files has the module, its licence and a notice, if "make highs" has installed them.
//
//go:embed module
var files embed.FS

// The module is that of the npm package highs 1.15.3, which has HiGHS 1.15.1. The build minifies
// the names of its functions, so they are valid only for exactly these bytes. A test compares
// them with the list in the package.
const (
	moduleSum = "528be4365bea1d4188988646b244263f50320df55782e14d6af5bce7cd45c840"

	memoryName = "u"
)

var exports = map[string]string{
	"__wasm_call_ctors":           "v",
	"malloc":                      "uc",
	"free":                        "tc",
	"Highs_create":                "F",
	"Highs_passLp":                "U",
	"Highs_passMip":               "V",
	"Highs_run":                   "N",
	"Highs_setBoolOptionValue":    "ia",
	"Highs_setIntOptionValue":     "ja",
	"Highs_setDoubleOptionValue":  "ka",
	"Highs_setStringOptionValue":  "la",
	"Highs_setBasis":              "Sa",
	"Highs_clearSolver":           "ga",
	"Highs_changeColsCostByRange": "qb",
	"Highs_getSolution":           "Ea",
	"Highs_getBasis":              "Fa",
	"Highs_getModelStatus":        "Ga",
	"Highs_getIntInfoValue":       "Aa",
	"Highs_getDoubleInfoValue":    "Ba",
	"Highs_getInt64InfoValue":     "Ca",
}

var imports = map[string]string{
	"a": "__cxa_throw",
	"e": "__syscall_fcntl64",
	"h": "__syscall_ioctl",
	"i": "__syscall_openat",
	"k": "_abort_js",
	"s": "_emscripten_runtime_keepalive_clear",
	"l": "_setitimer_js",
	"m": "_tzset_js",
	"p": "clock_time_get",
	"j": "emscripten_date_now",
	"c": "emscripten_get_now",
	"q": "emscripten_resize_heap",
	"n": "environ_get",
	"o": "environ_sizes_get",
	"b": "exit",
	"d": "fd_close",
	"g": "fd_read",
	"t": "fd_seek",
	"f": "fd_write",
	"r": "proc_exit",
}

// embedded returns the module, or nil if the build has none.
func embedded() ([]byte, error) {
	b, err := files.ReadFile("module/highs.wasm")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	if got := hex.EncodeToString(sum[:]); got != moduleSum {
		return nil, fmt.Errorf("adapters/highs/module/highs.wasm has SHA-256 %s, want %s: run make highs", got, moduleSum)
	}
	return b, nil
}

// ticksPerSecond is the number of requests for the time that make one second of module time.
const ticksPerSecond = 1_000_000

const (
	pageSize    = 64 << 10
	memoryLimit = 2 << 30
)

// machine holds the compiled module and makes a new instance of it for every program. So every
// solve starts in the same state, and earlier programs cannot affect an answer.
type machine struct {
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	limit    uint64 // memory of an instance in bytes
	ticks    uint64 // of the instance's clock
}

func newMachine(ctx context.Context, cache wazero.CompilationCache) (*machine, error) {
	wasm, err := embedded()
	if err != nil {
		return nil, err
	}
	if wasm == nil {
		return nil, linear.ErrUnavailable
	}
	config := wazero.NewRuntimeConfigCompiler().WithDebugInfoEnabled(false)
	if cache != nil {
		config = config.WithCompilationCache(cache)
	}
	m := &machine{limit: memoryLimit, runtime: wazero.NewRuntimeWithConfig(ctx, config)}
	if m.compiled, err = m.runtime.CompileModule(ctx, wasm); err != nil {
		_ = m.runtime.Close(ctx)
		return nil, fmt.Errorf("compile the solver: %w", err)
	}
	host := m.runtime.NewHostModuleBuilder("a")
	for _, f := range m.compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		call := m.host(imports[name])
		if module != "a" || call == nil {
			return nil, fmt.Errorf("the solver imports an unknown function %s.%s", module, name)
		}
		host.NewFunctionBuilder().WithGoModuleFunction(call, f.ParamTypes(), f.ResultTypes()).Export(name)
	}
	if _, err := host.Instantiate(ctx); err != nil {
		return nil, fmt.Errorf("instantiate the imports of the solver: %w", err)
	}
	return m, nil
}

// ended is the error of a module that ended itself.
type ended string

func (e ended) Error() string { return string(e) }

// host returns the function that the module imports under a name. The module gets no files, no
// environment and no real clock. Its time is the number of requests for the time, so that results
// do not depend on the speed of the machine.
func (m *machine) host(name string) api.GoModuleFunction {
	result := func(v uint64) api.GoModuleFunc {
		return func(_ context.Context, _ api.Module, stack []uint64) {
			if len(stack) > 0 {
				stack[0] = v
			}
		}
	}
	end := func(why string) api.GoModuleFunc {
		return func(context.Context, api.Module, []uint64) { panic(ended(why)) }
	}
	const notSupported = 52
	switch name {
	case "emscripten_get_now", "emscripten_date_now": // milliseconds
		return api.GoModuleFunc(func(_ context.Context, _ api.Module, stack []uint64) {
			m.ticks++
			stack[0] = api.EncodeF64(float64(m.ticks) * (1e3 / ticksPerSecond))
		})
	case "clock_time_get": // nanoseconds
		return api.GoModuleFunc(func(_ context.Context, mod api.Module, stack []uint64) {
			m.ticks++
			mod.Memory().WriteUint64Le(uint32(stack[2]), m.ticks*(1e9/ticksPerSecond))
			stack[0] = 0
		})
	case "emscripten_resize_heap":
		return api.GoModuleFunc(func(_ context.Context, mod api.Module, stack []uint64) {
			stack[0] = grow(mod.Memory(), uint64(uint32(stack[0])), m.limit)
		})
	case "fd_write": // discards the output
		return api.GoModuleFunc(func(_ context.Context, mod api.Module, stack []uint64) {
			var n uint32
			for i := range uint32(stack[2]) {
				length, _ := mod.Memory().ReadUint32Le(uint32(stack[1]) + 8*i + 4)
				n += length
			}
			mod.Memory().WriteUint32Le(uint32(stack[3]), n)
			stack[0] = 0
		})
	case "environ_sizes_get":
		return api.GoModuleFunc(func(_ context.Context, mod api.Module, stack []uint64) {
			mod.Memory().WriteUint32Le(uint32(stack[0]), 0)
			mod.Memory().WriteUint32Le(uint32(stack[1]), 0)
			stack[0] = 0
		})
	case "environ_get", "_setitimer_js", "_tzset_js", "_emscripten_runtime_keepalive_clear", "fd_close":
		return result(0)
	case "fd_read", "fd_seek":
		return result(notSupported)
	case "__syscall_fcntl64", "__syscall_ioctl", "__syscall_openat":
		return result(uint64(uint32(math.MaxUint32 - notSupported + 1)))
	case "__cxa_throw":
		return end("the solver threw an exception: most likely its 2 GiB of memory are not enough")
	case "_abort_js", "exit", "proc_exit":
		return end("the solver aborted: most likely its 2 GiB of memory are not enough")
	}
	return nil
}

// grow grows the memory to at least want bytes, and by at least a fifth.
func grow(memory api.Memory, want, limit uint64) uint64 {
	have := uint64(memory.Size())
	if want > limit {
		return 0
	}
	want = min(max(want, have+have/5), limit)
	if _, ok := memory.Grow(uint32((want - have + pageSize - 1) / pageSize)); !ok {
		return 0
	}
	return 1
}

// reserved is memory reserved at its full size. The kernel allocates pages as they are touched.
type reserved []byte

func reserve(_, most uint64) experimental.LinearMemory {
	b, err := unix.Mmap(-1, 0, int(most), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		panic(ended(fmt.Sprintf("reserve %d MiB for the solver: %v", most>>20, err)))
	}
	return reserved(b)
}

func (r reserved) Reallocate(size uint64) []byte {
	if size > uint64(len(r)) {
		return nil
	}
	return r[:size]
}

func (r reserved) Free() { _ = unix.Munmap(r) }

// instance is an instance of the module, for one solve.
type instance struct {
	ctx    context.Context
	module api.Module
	memory api.Memory
	highs  uint64
}

// failure is a panic that ends a solve with an error; solve recovers it.
type failure struct{ error }

func (x *instance) call(name string, args ...uint64) uint64 {
	f := x.module.ExportedFunction(exports[name])
	if f == nil {
		panic(failure{fmt.Errorf("the solver exports no %s", name)})
	}
	results, err := f.Call(x.ctx, args...)
	if err != nil {
		if e, ok := errors.AsType[ended](err); ok {
			err = e
		}
		panic(failure{fmt.Errorf("%s: %w", name, err)})
	}
	if len(results) == 0 {
		return 0
	}
	return results[0]
}

// must calls a function that returns a status, where -1 is an error.
func (x *instance) must(name string, args ...uint64) {
	if status := int32(x.call(name, append([]uint64{x.highs}, args...)...)); status < 0 {
		panic(failure{fmt.Errorf("%s refused the program", name)})
	}
}

func (x *instance) alloc(n int) uint64 {
	p := x.call("malloc", uint64(max(n, 8)))
	if uint32(p) == 0 {
		panic(failure{fmt.Errorf("no room for %d bytes: the solver's 2 GiB of memory are not enough", n)})
	}
	return uint64(uint32(p))
}

func (x *instance) write(b []byte) uint64 {
	p := x.alloc(len(b))
	if !x.memory.Write(uint32(p), b) {
		panic(failure{errors.New("the solver returned an address outside of its memory")})
	}
	return p
}

func (x *instance) read(p uint64, n int) []byte {
	b, ok := x.memory.Read(uint32(p), uint32(n))
	if !ok {
		panic(failure{errors.New("the solver returned an address outside of its memory")})
	}
	return b
}

func (x *instance) name(s string) uint64 { return x.write(append([]byte(s), 0)) }

func (x *instance) option(name string, v any) {
	switch v := v.(type) {
	case bool:
		var b uint64
		if v {
			b = 1
		}
		x.must("Highs_setBoolOptionValue", x.name(name), b)
	case int32:
		x.must("Highs_setIntOptionValue", x.name(name), uint64(uint32(v)))
	case float64:
		x.must("Highs_setDoubleOptionValue", x.name(name), api.EncodeF64(v))
	case string:
		x.must("Highs_setStringOptionValue", x.name(name), x.name(v))
	default:
		panic(failure{fmt.Errorf("option %s has type %T, and the solver has no setter for it", name, v)})
	}
}

func (x *instance) info(name string) uint64 {
	p := x.write(make([]byte, 8))
	call := "Highs_getDoubleInfoValue"
	switch name {
	case "simplex_iteration_count", "primal_solution_status", "basis_validity":
		call = "Highs_getIntInfoValue"
	case "mip_node_count":
		call = "Highs_getInt64InfoValue"
	}
	x.must(call, x.name(name), p)
	return binary.LittleEndian.Uint64(x.read(p, 8))
}

// The solver's codes for the status of a model.
const (
	modelEmpty          = 6
	modelOptimal        = 7
	modelInfeasible     = 8
	modelEither         = 9 // unbounded or infeasible
	modelUnbounded      = 10
	modelTimeLimit      = 13
	modelIterationLimit = 14
	modelSolutionLimit  = 16

	feasiblePoint = 2
)

func (x *instance) run() (status int32) {
	x.call("Highs_run", x.highs)
	return int32(x.call("Highs_getModelStatus", x.highs))
}

// runWith solves the model again with other costs.
func (x *instance) runWith(cost uint64, columns int) (status int32) {
	x.must("Highs_clearSolver")
	x.must("Highs_changeColsCostByRange", 0, uint64(columns-1), cost)
	return x.run()
}

func answered(status int32) bool {
	switch status {
	case modelEmpty, modelOptimal, modelInfeasible, modelUnbounded:
		return true
	}
	return limited(status)
}

func limited(status int32) bool {
	switch status {
	case modelTimeLimit, modelIterationLimit, modelSolutionLimit:
		return true
	}
	return false
}

// solve solves a program in a new instance.
func (m *machine) solve(ctx context.Context, r *request) (s *linear.Solution, err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			s, err = nil, p.error
		case ended:
			s, err = nil, p
		default:
			panic(p)
		}
	}()
	m.ticks = 0
	module, err := m.runtime.InstantiateModule(
		experimental.WithMemoryAllocator(ctx, experimental.MemoryAllocatorFunc(reserve)),
		m.compiled,
		wazero.NewModuleConfig().WithName("").WithStartFunctions(),
	)
	if err != nil {
		return nil, fmt.Errorf("instantiate the solver: %w", err)
	}
	defer func() { _ = module.Close(ctx) }()
	x := &instance{ctx: ctx, module: module, memory: module.ExportedMemory(memoryName)}
	if x.memory == nil {
		return nil, errors.New("the solver exports no memory")
	}
	x.call("__wasm_call_ctors")
	x.highs = x.call("Highs_create")

	whole := r.whole != 0
	x.option("output_flag", false)
	x.option("random_seed", int32(0))
	x.option("threads", int32(1))
	x.option("parallel", "off")
	x.option("time_limit", math.Inf(1))
	if whole {
		if r.gap > 0 {
			x.option("mip_rel_gap", r.gap)
		}
		if r.checks > 0 {
			x.option("time_limit", float64(r.checks)/ticksPerSecond)
		}
		if r.nodes > 0 {
			x.option("mip_max_nodes", r.nodes)
		}
	} else {
		x.option("solver", "simplex")
		if r.iterations > 0 {
			x.option("simplex_iteration_limit", r.iterations)
		}
	}

	p := x.write(r.body)
	at := func(offset int) uint64 { return p + uint64(offset) }
	const byColumns, minimise = 1, 1
	model := []uint64{
		uint64(r.columns), uint64(r.rows), uint64(r.entries), byColumns, minimise, api.EncodeF64(0),
		at(r.cost), at(r.lower), at(r.upper), at(r.rowLower), at(r.rowUpper), at(r.start), at(r.index), at(r.value),
	}
	if whole {
		x.must("Highs_passMip", append(model, at(r.whole))...)
	} else {
		x.must("Highs_passLp", model...)
	}
	// A basis is only a hint: an unusable one costs time, but does not change the answer.
	if r.columnBasis != 0 {
		x.call("Highs_setBasis", x.highs, at(r.columnBasis), at(r.rowBasis))
	}

	status := x.run()
	if status == modelInfeasible || status == modelEither {
		// The presolve of HiGHS 1.15.1 calls some unbounded programs infeasible. Solve again
		// without costs: then no program is unbounded, so the answer can be trusted.
		status = x.runWith(x.write(make([]byte, 8*r.columns)), r.columns)
		switch {
		case limited(status):
			return &linear.Solution{Status: linear.Limited, Objective: math.Inf(1), Bound: math.Inf(-1)}, nil
		case status != modelInfeasible:
			x.option("presolve", "off")
			if status = x.runWith(at(r.cost), r.columns); status == modelEither {
				status = modelUnbounded
			} else if status == modelInfeasible {
				return nil, errors.New("the solver contradicts itself on whether the program is feasible")
			}
		}
	} else if !answered(status) {
		// Rarely the simplex fails numerically. Without presolve and basis it takes another
		// path.
		x.option("presolve", "off")
		if status = x.runWith(at(r.cost), r.columns); !answered(status) {
			const primal int32 = 4
			x.option("simplex_strategy", primal)
			status = x.runWith(at(r.cost), r.columns)
		}
	}
	s = &linear.Solution{
		Iterations: int(max(int32(uint32(x.info("simplex_iteration_count"))), 0)),
		Bound:      math.Inf(-1),
	}
	if whole {
		s.Nodes = int(max(int64(x.info("mip_node_count")), 0))
	}
	s.Objective = math.Float64frombits(x.info("objective_function_value"))
	switch status {
	case modelOptimal, modelEmpty:
		s.Status, s.Bound = linear.Optimal, s.Objective
	case modelInfeasible:
		s.Status, s.Objective, s.Bound = linear.Infeasible, math.Inf(1), math.Inf(1)
		return s, nil
	case modelUnbounded:
		s.Status, s.Objective = linear.Unbounded, math.Inf(-1)
		return s, nil
	case modelTimeLimit, modelIterationLimit, modelSolutionLimit:
		s.Status = linear.Limited
	default:
		return nil, fmt.Errorf("the solver found no answer (model status %d)", status)
	}
	if whole {
		s.Bound = math.Float64frombits(x.info("mip_dual_bound"))
	}

	columns, rows := x.alloc(8*r.columns), x.alloc(8*r.rows)
	duals, activity := x.alloc(8*r.columns), x.alloc(8*r.rows)
	feasible := int32(uint32(x.info("primal_solution_status"))) == feasiblePoint
	x.must("Highs_getSolution", columns, duals, activity, rows)
	if feasible || s.Status == linear.Optimal {
		s.X = x.floats(columns, r.columns)
	} else {
		s.Objective = math.Inf(1)
	}
	if !whole {
		if s.Status == linear.Optimal {
			s.Prices = x.floats(rows, r.rows)
		}
		if int32(uint32(x.info("basis_validity"))) == 1 {
			x.must("Highs_getBasis", columns, rows)
			s.Basis = &linear.Basis{Columns: x.codes(columns, r.columns), Rows: x.codes(rows, r.rows)}
		}
	}
	return s, nil
}

func (x *instance) floats(p uint64, n int) []float64 {
	b := x.read(p, 8*n)
	out := make([]float64, n)
	for i := range out {
		out[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:])) + 0 // no negative zero
	}
	return out
}

func (x *instance) codes(p uint64, n int) []int8 {
	b := x.read(p, 4*n)
	out := make([]int8, n)
	for i := range out {
		out[i] = int8(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}
