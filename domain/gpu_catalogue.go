package domain

import "strings"

// GPUModel holds what the maker states about one type of GPU. A zero field is unknown, or differs
// between the products that share the entry.
type GPUModel struct {
	Name       string     // the one spelling used in events, for example "A100 80GB"
	MemoryMiB  uint64     // nominal, per GPU
	MemoryGBps uint32     // peak memory bandwidth, 10⁹ bytes per second
	ECC        bool       // the maker specifies error-correcting memory
	Consumer   bool       // sold for desktops, not for data centres or workstations
	MIG        *MIGLayout // nil: the GPU cannot be partitioned
}

// MIGLayout says how a GPU divides into MIG instances.
//
// An instance takes whole slices of compute and of memory; its weight is the
// larger of its two shares.
type MIGLayout struct {
	ComputeSlices uint32
	MemorySlices  uint32
	Profiles      []MIGProfile // empty: the maker's table was not available
}

// MIGProfile is one size of MIG instance.
type MIGProfile struct {
	Name          string // as nvidia-smi prints it, for example "1g.10gb"
	ComputeSlices uint32
	MemorySlices  uint32
	MaxInstances  uint32 // on one GPU, when no other profile is on it
}

// Profile returns the profile of a name, with or without a leading "MIG ".
func (l *MIGLayout) Profile(name string) (MIGProfile, bool) {
	if l == nil {
		return MIGProfile{}, false
	}
	name = strings.ToLower(strings.TrimSpace(name))
	name = strings.TrimPrefix(strings.TrimPrefix(name, "mig "), "mig-")
	for _, p := range l.Profiles {
		if p.Name == name {
			return p, true
		}
	}
	return MIGProfile{}, false
}

// LookupGPU finds a GPU model by the name that a driver, a cloud, a price list or a trace uses for
// it: "NVIDIA A100-SXM4-80GB", "A100 (80 GB)", "Tesla T4", "V100M32". It reports false for unknown
// names and for names that fit several different products. The families "A100", "H100" and "V100"
// are exceptions: their entries leave out what differs. Every H200 has 141 GB. The anonymous models
// G2 and G3 of the openb trace stay unknown.
//
// Sources: NVIDIA's data sheets and product briefs (memory, bandwidth, ECC); NVIDIA Multi-Instance
// GPU User Guide, "Supported GPUs" and "Supported MIG Profiles" (r580); the configurations of
// NVIDIA's mig-parted for H100 94 GB and 96 GB and GB200; AMD's data sheets of the Instinct series.
// The guide prints one eighth of memory for the A100's 1g.10gb. Four instances with twice the
// memory of 1g.5gb make it two eighths, as the guide prints for the H100. B300's memory is what the
// driver shows, 288·10⁹ bytes.
func LookupGPU(name string) (GPUModel, bool) {
	i, ok := gpuIndex[gpuKey(name)]
	if !ok {
		return GPUModel{}, false
	}
	return gpuModels[i], true
}

// GPUModels returns the catalogue in its fixed order. Callers MUST NOT write to the layouts, which
// are shared.
func GPUModels() []GPUModel { return append([]GPUModel(nil), gpuModels...) }

// gpuKey drops the differences between spellings of one model: case, punctuation, spaces, the
// maker's and the brand's name.
func gpuKey(name string) string {
	b := make([]byte, 0, len(name))
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			b = append(b, c)
		case c >= 'A' && c <= 'Z':
			b = append(b, c+'a'-'A')
		}
	}
	k := string(b)
	for _, word := range []string{"nvidia", "amd", "tesla", "geforce", "instinct"} {
		k = strings.TrimPrefix(k, word)
	}
	for _, word := range []string{"gpu", "tensorcore", "blackwell"} {
		k = strings.TrimSuffix(k, word)
	}
	return k
}

// sevenSlices is the layout with seven compute and eight memory slices: A100, H100, H200, B200 and
// similar. The four sizes name the memory of one, two, four and eight slices.
func sevenSlices(one, two, four, eight string) *MIGLayout {
	return &MIGLayout{ComputeSlices: 7, MemorySlices: 8, Profiles: []MIGProfile{
		{"1g." + one, 1, 1, 7},
		{"1g." + one + "+me", 1, 1, 1},
		{"1g." + two, 1, 2, 4},
		{"2g." + two, 2, 2, 3},
		{"3g." + four, 3, 4, 2},
		{"4g." + four, 4, 4, 1},
		{"7g." + eight, 7, 8, 1},
	}}
}

var (
	mig40gb  = sevenSlices("5gb", "10gb", "20gb", "40gb")
	mig80gb  = sevenSlices("10gb", "20gb", "40gb", "80gb")
	mig94gb  = sevenSlices("12gb", "24gb", "47gb", "94gb")
	mig96gb  = sevenSlices("12gb", "24gb", "48gb", "96gb")
	mig141gb = sevenSlices("18gb", "35gb", "71gb", "141gb")
	mig180gb = sevenSlices("23gb", "45gb", "90gb", "180gb")
	mig186gb = sevenSlices("23gb", "47gb", "93gb", "186gb")
	migA30   = &MIGLayout{ComputeSlices: 4, MemorySlices: 4, Profiles: []MIGProfile{
		{"1g.6gb", 1, 1, 4},
		{"1g.6gb+me", 1, 1, 1},
		{"2g.12gb", 2, 2, 2},
		{"2g.12gb+me", 2, 2, 1},
		{"4g.24gb", 4, 4, 1},
	}}
	migPro6000 = &MIGLayout{ComputeSlices: 4, MemorySlices: 4, Profiles: []MIGProfile{
		{"1g.24gb", 1, 1, 4},
		{"1g.24gb+me", 1, 1, 1},
		{"1g.24gb+gfx", 1, 1, 4},
		{"1g.24gb+me.all", 1, 1, 1},
		{"1g.24gb-me", 1, 1, 4},
		{"2g.48gb", 2, 2, 2},
		{"2g.48gb+gfx", 2, 2, 2},
		{"2g.48gb+me.all", 2, 2, 1},
		{"2g.48gb-me", 2, 2, 2},
		{"4g.96gb", 4, 4, 1},
		{"4g.96gb+gfx", 4, 4, 1},
	}}
	migB300 = &MIGLayout{ComputeSlices: 7, MemorySlices: 8}
)

const gib = 1024 // in MiB

var gpuModels = []GPUModel{
	// NVIDIA, data centre.
	{Name: "K80", MemoryMiB: 12 * gib, MemoryGBps: 240, ECC: true}, // one of the two GPUs of a board
	{Name: "M60", MemoryMiB: 8 * gib, MemoryGBps: 160, ECC: true},  // one of the two GPUs of a board
	{Name: "P4", MemoryMiB: 8 * gib, MemoryGBps: 192, ECC: true},
	{Name: "P40", MemoryMiB: 24 * gib, ECC: true},
	{Name: "P100", MemoryMiB: 16 * gib, MemoryGBps: 732, ECC: true},
	{Name: "V100", MemoryGBps: 900, ECC: true}, // 16 or 32 GB
	{Name: "V100 16GB", MemoryMiB: 16 * gib, MemoryGBps: 900, ECC: true},
	{Name: "V100 32GB", MemoryMiB: 32 * gib, MemoryGBps: 900, ECC: true},
	{Name: "V100S 32GB", MemoryMiB: 32 * gib, MemoryGBps: 1134, ECC: true},
	{Name: "T4", MemoryMiB: 16 * gib, MemoryGBps: 320, ECC: true},
	{Name: "T4G", MemoryMiB: 16 * gib, ECC: true},
	{Name: "A2", MemoryMiB: 16 * gib, MemoryGBps: 200, ECC: true},
	{Name: "A10", MemoryMiB: 24 * gib, MemoryGBps: 600, ECC: true},
	{Name: "A10G", MemoryMiB: 24 * gib, MemoryGBps: 600, ECC: true},
	{Name: "A30", MemoryMiB: 24 * gib, MemoryGBps: 933, ECC: true, MIG: migA30},
	{Name: "A40", MemoryMiB: 48 * gib, MemoryGBps: 696, ECC: true},
	{Name: "A100", ECC: true, MIG: &MIGLayout{ComputeSlices: 7, MemorySlices: 8}}, // 40 or 80 GB
	{Name: "A100 40GB", MemoryMiB: 40 * gib, MemoryGBps: 1555, ECC: true, MIG: mig40gb},
	{Name: "A100 80GB", MemoryMiB: 80 * gib, ECC: true, MIG: mig80gb}, // SXM 2,039 GB/s, PCIe 1,935 GB/s
	{Name: "L4", MemoryMiB: 24 * gib, MemoryGBps: 300, ECC: true},
	{Name: "L40", MemoryMiB: 48 * gib, MemoryGBps: 864, ECC: true},
	{Name: "L40S", MemoryMiB: 48 * gib, MemoryGBps: 864, ECC: true},
	{Name: "H100", ECC: true, MIG: &MIGLayout{ComputeSlices: 7, MemorySlices: 8}}, // 80 or 94 GB
	{Name: "H100 80GB", MemoryMiB: 80 * gib, ECC: true, MIG: mig80gb},             // SXM or PCIe, the source does not say
	{Name: "H100 SXM 80GB", MemoryMiB: 80 * gib, MemoryGBps: 3350, ECC: true, MIG: mig80gb},
	{Name: "H100 PCIe 80GB", MemoryMiB: 80 * gib, MemoryGBps: 2000, ECC: true, MIG: mig80gb},
	{Name: "H100 SXM 94GB", MemoryMiB: 94 * gib, ECC: true, MIG: mig94gb},
	{Name: "H100 NVL 94GB", MemoryMiB: 94 * gib, MemoryGBps: 3900, ECC: true, MIG: mig94gb},
	{Name: "GH200 96GB", MemoryMiB: 96 * gib, MemoryGBps: 4000, ECC: true, MIG: mig96gb},
	{Name: "H200 141GB", MemoryMiB: 141 * gib, MemoryGBps: 4800, ECC: true, MIG: mig141gb},
	{Name: "B200", MemoryMiB: 180 * gib, MemoryGBps: 8000, ECC: true, MIG: mig180gb},
	{Name: "B300", MemoryMiB: 268 * gib, MemoryGBps: 8000, ECC: true, MIG: migB300},
	{Name: "GB200", MemoryMiB: 186 * gib, MemoryGBps: 8000, ECC: true, MIG: mig186gb},

	// NVIDIA, workstation.
	{Name: "Quadro RTX 4000", MemoryMiB: 8 * gib, MemoryGBps: 416},
	{Name: "Quadro RTX 5000", MemoryMiB: 16 * gib, MemoryGBps: 448, ECC: true},
	{Name: "Quadro RTX 6000", MemoryMiB: 24 * gib, MemoryGBps: 672, ECC: true},
	{Name: "RTX A4000", MemoryMiB: 16 * gib, MemoryGBps: 448, ECC: true},
	{Name: "RTX A5000", MemoryMiB: 24 * gib, MemoryGBps: 768, ECC: true},
	{Name: "RTX A6000", MemoryMiB: 48 * gib, MemoryGBps: 768, ECC: true},
	{Name: "RTX 6000 Ada", MemoryMiB: 48 * gib, MemoryGBps: 960, ECC: true},
	{Name: "RTX PRO 6000 Blackwell", MemoryMiB: 96 * gib, ECC: true, MIG: migPro6000},

	// NVIDIA, consumer.
	{Name: "RTX 3090", MemoryMiB: 24 * gib, MemoryGBps: 936, Consumer: true},
	{Name: "RTX 4090", MemoryMiB: 24 * gib, MemoryGBps: 1008, Consumer: true},
	{Name: "RTX 5090", MemoryMiB: 32 * gib, MemoryGBps: 1792, Consumer: true},

	// AMD.
	{Name: "Radeon Pro V520", MemoryMiB: 8 * gib},
	{Name: "MI210", MemoryMiB: 64 * gib, ECC: true},
	{Name: "MI250X", MemoryMiB: 128 * gib, ECC: true},
	{Name: "MI300X", MemoryMiB: 192 * gib, MemoryGBps: 5300, ECC: true},
	{Name: "MI325X", MemoryMiB: 256 * gib, MemoryGBps: 6000, ECC: true},
}

// gpuAliases lists further spellings by canonical name. The canonical name itself and spellings
// that differ only in what gpuKey drops need no entry.
var gpuAliases = map[string][]string{
	"K80":        {"K80 12GB"},
	"M60":        {"M60 8GB"},
	"P4":         {"P4 8GB"},
	"P40":        {"P40 24GB"},
	"P100":       {"P100 16GB", "P100-PCIE-16GB", "P100-SXM2-16GB"},
	"V100 16GB":  {"V100M16", "V100-SXM2-16GB", "V100-PCIE-16GB", "V100 16GB HBM2"},
	"V100 32GB":  {"V100M32", "V100-SXM2-32GB", "V100-SXM3-32GB", "V100-PCIE-32GB", "V100 32GB HBM2"},
	"V100S 32GB": {"V100S-PCIE-32GB"},
	"T4":         {"T4 16GB"},
	"T4G":        {"T4G 16GB"},
	"A2":         {"A2 16GB"},
	"A10":        {"A10 24GB"},
	"A10G":       {"A10G 24GB"},
	"A30":        {"A30 24GB"},
	"A40":        {"A40 48GB"},
	"A100 40GB": {
		"A100-SXM4-40GB", "A100-PCIE-40GB", "A100-SXM-40GB", "A100 40GB PCIe", "A100 SXM 40GB", "A100 40GB HBM2",
	},
	"A100 80GB": {
		"A100-SXM4-80GB", "A100-PCIE-80GB", "A100-SXM-80GB", "A100 80GB PCIe", "A100 SXM 80GB", "A100 80GB HBM2e",
	},
	"L4":              {"L4 24GB"},
	"L40":             {"L40 48GB"},
	"L40S":            {"L40S 48GB"},
	"H100 SXM 80GB":   {"H100 80GB HBM3", "H100 SXM", "H100 SXM5", "H100 SXM5 80GB", "H100 HGX 80GB", "H100-SXM-80GB"},
	"H100 PCIe 80GB":  {"H100 PCIe", "H100 80GB PCIe", "H100 80GB HBM2e"},
	"H100 SXM 94GB":   {"H100-SXM5 94GB"},
	"H100 NVL 94GB":   {"H100 NVL", "H100 94GB NVL"},
	"GH200 96GB":      {"GH200 96GB HBM3"},
	"H200 141GB":      {"H200", "H200 SXM", "H200 SXM5", "H200 NVL", "H200 141GB HBM3e"},
	"B200":            {"B200 180GB", "B200 SXM", "B200 SXM6"},
	"B300":            {"B300 SXM6", "B300 SXM6 AC"},
	"GB200":           {"GB200 186GB"},
	"Quadro RTX 4000": {"RTX4000 8GB"},
	"Quadro RTX 5000": {"RTX5000 16GB"},
	"Quadro RTX 6000": {"Quadro RTX 6000 24GB"},
	"RTX A4000":       {"A4000", "A4000 16GB", "RTX A4000 16GB"},
	"RTX A5000":       {"A5000", "A5000 24GB", "RTX A5000 24GB"},
	"RTX A6000":       {"A6000", "A6000 48GB", "RTX A6000 48GB"},
	"RTX 6000 Ada":    {"RTX 6000 Ada Generation", "RTX 6000 Ada 48GB", "6000 Ada"},
	"RTX PRO 6000 Blackwell": {
		"RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000",
	},
	"RTX 3090": {"RTX 3090 24GB"},
	"RTX 4090": {"RTX 4090 24GB"},
	"RTX 5090": {"RTX 5090 32GB"},
	"MI300X":   {"MI300X OAM", "MI300X 192GB"},
	"MI325X":   {"MI325X OAM", "MI325X 256GB"},
}

var gpuIndex = func() map[string]int {
	index := make(map[string]int, 4*len(gpuModels))
	for i, m := range gpuModels {
		index[gpuKey(m.Name)] = i
		for _, alias := range gpuAliases[m.Name] {
			index[gpuKey(alias)] = i
		}
	}
	return index
}()
