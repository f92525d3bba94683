package attribution

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"quartermaster/domain"
)

// Meter says what of a machine a line sells. Of the lines of one machine, only those of the lowest
// meter that states time at an instant buy it; see [Run].
type Meter uint8

// The meters, highest rank first.
const (
	GPUTime      Meter = iota + 1 // GPU time: a machine of eight GPUs sells eight hours an hour
	MachineTime                   // time of whole machines
	HardwareTime                  // time of something named by a GPU model; whether of GPUs or machines is unknown
	PlainTime                     // time, and no column says of what
	Unstated                      // no quantity is time: the line may be for the machine as a whole
	// AddOn comes with a machine and is not its time: cores, memory, licences, discounts. It buys
	// nothing.
	AddOn
)

// MeterRule is a decision about what lines sell. It applies to lines whose columns all have the
// values that it names.
type MeterRule struct {
	Name    string            // as shown in reports
	Columns map[string]string // by [domain.BillingLine.Column]; see [domain.MappingRuleSet]
	Buys    domain.LineBuys
	// To is who is charged for lines of no machine: a workspace, or [PlatformOutside]. Shares or ShareBy say among
	// whom such lines are shared. A rule with any of these does not say what lines buy.
	To      string
	Shares  []domain.WorkspaceWeight
	ShareBy domain.ShareBy
	// Tax says that the rule is for lines of tax, and about nothing else: Recoverable is the share of them, 0 to 1,
	// that the tax authority returns. Without columns it is for all lines of tax.
	Tax         bool
	Recoverable Amount
}

// shares reports whether a rule shares lines.
func (r *MeterRule) shares() bool { return len(r.Shares) > 0 || r.ShareBy != "" }

// Charges reports whether a rule says who is charged for lines.
func (r *MeterRule) Charges() bool { return r.To != "" || r.shares() }

// assigned returns who is charged for a line that is for no machine, by the first such rule that matches it. to is ""
// if the rule shares the line.
func assigned(b *domain.BillingLine, rules []MeterRule) (to, rule string) {
	for i := range rules {
		if r := &rules[i]; r.Charges() && r.IsFor(b) {
			return r.To, r.Name
		}
	}
	return "", ""
}

// meters are the meters that a rule can set.
var meters = map[domain.LineBuys]Meter{
	domain.BuysGPUTime:     GPUTime,
	domain.BuysMachineTime: MachineTime,
	domain.BuysNothing:     AddOn,
}

// meterOf returns what a line sells, and which rule or column decided. The first rule
// that applies counts:
//
//  1. The first rule of rules that matches the line.
//  2. A word for software, licences or discounts in a meter column or in ServiceName
//     is AddOn, whatever the unit: a licence may be priced by the GPU-hour. So is any
//     other add-on in a meter column. The meter columns are SkuMeter, x_UsageType,
//     x_SkuMeterName, x_SkuMeterCategory, x_SkuMeterSubcategory and x_SkuDescription.
//  3. If no meter column says what is sold, such a word in ChargeDescription is AddOn.
//  4. A unit of GPU time ("GPU-Hours") is GPUTime, one of machines ("Instance
//     Hours") MachineTime.
//  5. What a meter column says.
//  6. An instance type in x_InstanceType or SkuPriceDetails is MachineTime.
//  7. What ChargeDescription says, then ServiceName, then SkuId. They often list the
//     parts of a machine, and so come after the machine's type. ServiceName and SkuId
//     are names of products: "GPU" in ServiceName says nothing about what is metered,
//     and in SkuId no more than a GPU model does.
//  8. ResourceType "instance" or "virtual machine" is MachineTime.
//  9. A GPU model in any of these texts is HardwareTime.
//  10. PlainTime if a quantity is time, else Unstated.
//
// [reading] describes how a text is read.
//
// A line without a quantity of time is Unstated or AddOn, whatever its name. The
// result alone is for an AddOn with a quantity of time that is one only by
// ChargeDescription or ServiceName: it is what the line sells if no other line buys its
// machines, that is, what the other columns say. For other lines it is 0.
//
// Sources of the words: the FOCUS sample of the FinOps Foundation and AWS Data
// Exports (x_UsageType BoxUsage, SoftwareUsage; "per On Demand Linux p4d.24xlarge
// Instance Hour"), the SKUs of Compute Engine at cloud.google.com/skus ("A2
// Instance Core running in Americas", "Nvidia Tesla A100 GPU running in
// Americas"), and Microsoft's FOCUS columns (x_SkuMeterCategory "Virtual Machines
// Licenses"). For smaller suppliers see the test TestMeterOfSuppliers.
func meterOf(b *domain.BillingLine, rules []MeterRule) (m, alone Meter, reason string) {
	timed := hasTime(b)
	for i := range rules {
		r := &rules[i]
		if r.Charges() || r.Tax || !r.IsFor(b) {
			continue
		}
		if m = meters[r.Buys]; m != AddOn && !timed {
			return Unstated, 0, fmt.Sprintf("mapping rule %s says %s, and no quantity is time", r.Name, r.Buys)
		}
		return m, 0, fmt.Sprintf("mapping rule %s says %s", r.Name, r.Buys)
	}
	m, reason, free := meterIn(b, false)
	switch {
	case m != AddOn && !timed:
		return Unstated, 0, "no quantity is time"
	case m == AddOn && free && timed:
		alone, _, _ = meterIn(b, true)
	}
	return m, alone, reason
}

var meterColumns = [...]string{
	"SkuMeter", "x_UsageType", "x_SkuMeterName", "x_SkuMeterCategory", "x_SkuMeterSubcategory", "x_SkuDescription",
}

// meterIn applies steps 2 to 10. free reports that a free-text column decided. With noAddOns,
// add-ons in such columns do not count.
func meterIn(b *domain.BillingLine, noAddOns bool) (m Meter, reason string, free bool) {
	var metered, hardware reading
	in, hardwareIn := "", ""
	for _, c := range meterColumns {
		r := read(b.Column(c))
		switch {
		case r.software, r.meter == AddOn && metered.meter == 0:
			return AddOn, r.says(c), false
		case r.meter == HardwareTime:
			hardware, hardwareIn = r, c
		case metered.meter == 0:
			metered, in = r, c
		}
	}
	description, service := read(b.ChargeDescription), read(b.ServiceName)
	if !noAddOns {
		if service.software {
			return AddOn, service.says("ServiceName"), true
		}
		if description.software && metered.meter == 0 {
			return AddOn, description.says("ChargeDescription"), true
		}
	}
	for _, u := range [...]struct{ column, unit string }{{"PricingUnit", b.PricingUnit}, {"ConsumedUnit", b.ConsumedUnit}} {
		ms, gpu := timeOf(u.unit)
		if ms == 0 {
			continue
		}
		if gpu {
			return GPUTime, u.column + " is " + u.unit, false
		}
		if _, _, of := unit(u.unit); of != "" {
			return MachineTime, u.column + " is " + u.unit, false
		}
		break // the quantity that counts states nothing else
	}
	switch {
	case metered.meter != 0:
		return metered.meter, metered.says(in), false
	case b.Other[columnInstance] != "":
		return MachineTime, columnInstance + " names a machine type", false
	case typeInDetails(b) != "":
		return MachineTime, "SkuPriceDetails names an instance type", false
	}
	for _, c := range [...]struct {
		name string
		reading
	}{{"ChargeDescription", description}, {"ServiceName", service}, {"SkuId", read(b.SKUID)}} {
		product := c.name != "ChargeDescription"
		switch m := c.meter; {
		case m == 0, m == AddOn && (noAddOns || c.name == "SkuId"):
		case m == HardwareTime, m == GPUTime && c.name == "SkuId":
			if hardware.meter == 0 {
				hardware, hardwareIn = c.reading, c.name
			}
		case m == GPUTime && product:
		default:
			return m, c.says(c.name), true
		}
	}
	switch {
	case strings.EqualFold(b.ResourceType, "instance"), strings.EqualFold(b.ResourceType, "virtual machine"):
		return MachineTime, "ResourceType is " + b.ResourceType, false
	case hardware.meter != 0:
		return HardwareTime, hardware.says(hardwareIn), false
	}
	return PlainTime, "no column says what the time is of", false
}

// IsFor reports whether every column that the rule names has its value. A value that begins or ends
// with * stands for any text there.
func (r *MeterRule) IsFor(b *domain.BillingLine) bool {
	for name, want := range r.Columns {
		if !Fits(b.Column(name), want) {
			return false
		}
	}
	return len(r.Columns) > 0 || r.Tax
}

// Fits reports whether a value is the wanted one, which stands for any text where it begins or ends with *.
func Fits(s, want string) bool {
	tail, anyBefore := strings.CutPrefix(want, "*")
	text, anyAfter := strings.CutSuffix(tail, "*")
	switch {
	case want == "*":
		return true
	case anyBefore && anyAfter:
		return strings.Contains(s, text)
	case anyBefore:
		return strings.HasSuffix(s, text)
	case anyAfter:
		return strings.HasPrefix(s, text)
	}
	return s == want
}

// meterWords are the words that decide, in lower case and singular.
var meterWords = map[string]Meter{
	"gpu": GPUTime, "accelerator": GPUTime,

	"instance": MachineTime, "vm": MachineTime, "machine": MachineTime,
	"node": MachineTime, "server": MachineTime, "host": MachineTime,
	"metal": MachineTime, "baremetal": MachineTime, "hgx": MachineTime, "dgx": MachineTime,
	"boxusage": MachineTime, "spotusage": MachineTime, "dedicatedusage": MachineTime,
	"hostusage": MachineTime, "reservedhostusage": MachineTime,

	"core": AddOn, "vcpu": AddOn, "vcore": AddOn, "cpu": AddOn, "ocpu": AddOn, "ram": AddOn, "memory": AddOn,
	"marketplace": AddOn, "support": AddOn,
	"ebsoptimized": AddOn, "storage": AddOn, "disk": AddOn, "volume": AddOn, "ssd": AddOn, "nvme": AddOn,
	"gateway": AddOn, "ipv4": AddOn, "ip": AddOn, "address": AddOn,
	"network": AddOn, "networking": AddOn, "egress": AddOn, "monitoring": AddOn, "backup": AddOn,
}

// softwareWords are add-ons that are not parts of a machine.
var softwareWords = map[string]bool{
	"license": true, "licence": true, "licensing": true, "software": true, "softwareusage": true,
	"discount": true, "negation": true, "savingsplannegation": true, "edpdiscount": true, "privateratediscount": true,
}

// softwareNames are products licensed by the hour of machines or GPUs, as [wordsOf] splits them.
// Each counts as one word for software. NVIDIA AI Enterprise is sold this way on the marketplaces
// of AWS, Azure and Google Cloud.
var softwareNames = [][]string{
	{"nvidia", "ai", "enterprise"},
	{"red", "hat", "enterprise", "linux"},
	{"suse", "linux", "enterprise"},
	{"windows", "server"},
	{"sql", "server"},
}

// gpuModels are words that imply GPUs in a text.
var gpuModels = map[string]bool{
	"a10": true, "a10g": true, "a16": true, "a30": true, "a40": true, "a100": true, "a800": true,
	"a4000": true, "a5000": true, "a6000": true,
	"b100": true, "b200": true, "b300": true, "gb200": true, "gb300": true, "gh200": true,
	"h20": true, "h100": true, "h200": true, "h800": true,
	"k80": true, "l4": true, "l40": true, "l40s": true, "p100": true, "t4": true, "v100": true,
	"mi210": true, "mi250": true, "mi250x": true, "mi300": true, "mi300x": true, "mi325x": true,
	"mi350x": true, "mi355x": true, "gaudi2": true, "gaudi3": true, "rtx": true,
}

// phraseEnds are the words that end a phrase.
var phraseEnds = map[string]bool{
	"running": true, "attached": true, "used": true, "in": true, "on": true, "at": true, "for": true,
	"of": true, "to": true, "by": true, "from": true, "and": true,
	"with": true, "without": true, "including": true, "per": true, "via": true,
}

// reading is what a text says is sold. A text is read phrase by phrase: a phrase
// ends at punctuation and at words such as "running", "in", "per" and "with". In the
// first phrase with a word that decides, the last such word counts, because a noun
// comes after its modifiers: "A2 Instance Core" is a core, a "GPU instance" an
// instance, and a "vCPU VM License" a licence. Exceptions:
//
//   - Two or more GPUs, by word or model, are a machine: "8x H100 GPU".
//   - A phrase that names a GPU model and has no such word is HardwareTime. Later
//     phrases only describe it: "H100 cluster, InfiniBand network".
//   - A part of a machine with a number before it, such as "208 CPU cores" or "30TB
//     SSD", counts only in a text that names no other part and nothing else.
//   - What comes after "with", "without" or "including" is not an add-on that is sold.
type reading struct {
	meter    Meter
	word     string
	software bool // the add-on is software, a licence or a discount
}

func (r reading) says(column string) string { return fmt.Sprintf("%s says %q", column, r.word) }

func read(text string) (r reading) {
	if text == "" {
		return r
	}
	var (
		parts    []string // kinds of parts with a number before them
		included bool     // after "with"
		number   bool     // the phrase has a number
		gpus     int      // number of GPUs in the phrase
		model    string
		words    = wordsOf(text)
	)
	for i := range words {
		w := &words[i]
		low := strings.ToLower(w.text)
		m, known := meterWords[low]
		if !known {
			m, known = meterWords[strings.TrimSuffix(low, "s")]
		}
		software := softwareWords[low] || softwareWords[strings.TrimSuffix(low, "s")] || w.product
		n := timesOf(low)
		switch {
		case phraseEnds[low]:
			included = included || low == "with" || low == "without" || low == "including"
			w.ends = true
		case included && (software || m == AddOn):
		case software:
			r = reading{AddOn, w.text, true}
		case m == AddOn && number:
			if kind := cmp.Or(partKinds[strings.TrimSuffix(low, "s")], low); !slices.Contains(parts, kind) {
				parts = append(parts, kind)
			}
		case m == GPUTime, isModel(low):
			if m != GPUTime {
				model = w.text
			} else {
				r = reading{meter: GPUTime, word: w.text}
			}
			if gpus = max(gpus, countBefore(words[:i])); gpus > 1 {
				r = reading{meter: MachineTime, word: fmt.Sprintf("%dx %s", gpus, w.text)}
			}
		case known:
			r = reading{meter: m, word: w.text}
		case n > 1 && low[0] == 'x', startsWithDigit(low) && w.counts(words[i+1:]):
			if hardware := cmp.Or(model, r.word); model != "" || r.meter == GPUTime {
				r = reading{meter: MachineTime, word: hardware + " " + w.text}
			}
		}
		number = number || startsWithDigit(low)
		if n > 1 && startsWithDigit(low) {
			gpus = n
		}
		if w.ends {
			if r.meter != 0 || model != "" {
				break
			}
			if low != "of" { // "2 TB of memory"
				number, gpus = false, 0
			}
		}
	}
	switch {
	case r.meter != 0:
	case model != "":
		r = reading{meter: HardwareTime, word: model}
	case len(parts) == 1:
		r = reading{meter: AddOn, word: parts[0]}
	}
	return r
}

// partKinds map the names of parts that have several names.
var partKinds = map[string]string{
	"core": "cores", "vcpu": "cores", "vcore": "cores", "cpu": "cores", "ocpu": "cores", "ram": "memory",
	"ssd": "storage", "nvme": "storage", "disk": "storage", "volume": "storage",
}

// textWord is a word of a text. Type names are split where it matters: "8xH100" becomes "8x" and
// "H100", "BM.GPU.H100.8" four words.
type textWord struct {
	text string
	sep  byte // the separator before it
	ends bool // it is the last of its phrase
	// product: several words merged into one, a name of softwareNames.
	product bool
}

// counts reports whether a number at the end of a type's name counts GPUs: "H100-SXM-8",
// "BM.GPU.H100.8", "h100-80gb-sxm-ib.8x".
func (w *textWord) counts(next []textWord) bool {
	if w.sep != '.' && w.sep != '-' && w.sep != '_' || len(next) > 0 && sizeUnits[strings.ToLower(next[0].text)] {
		return false
	}
	switch strings.TrimSuffix(w.text, "x") {
	case "2", "4", "8", "16":
		return true
	}
	return false
}

var sizeUnits = map[string]bool{"g": true, "gb": true, "gib": true, "t": true, "tb": true, "tib": true, "gbps": true}

// countBefore returns the number at the end of words, before at most one other word: "8x", "8 x",
// "8" or "8 NVIDIA".
func countBefore(words []textWord) int {
	for i := len(words) - 1; i >= 0; i-- {
		low := strings.ToLower(words[i].text)
		if low == "x" || low == "×" || low == "nvidia" || low == "amd" {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSuffix(low, "x"))
		if err != nil || words[i].ends {
			return 0
		}
		return n
	}
	return 0
}

// timesOf returns n of "8x" and "x8", else 0.
func timesOf(low string) int {
	if trimmed := strings.Trim(low, "x"); len(trimmed) == len(low)-1 {
		n, _ := strconv.Atoi(trimmed)
		return n
	}
	return 0
}

func startsWithDigit(low string) bool { return '0' <= low[0] && low[0] <= '9' }

// isModel reports whether a word is a GPU model, with or without letters after it: "H100",
// "h100ib".
func isModel(low string) bool {
	return gpuModels[low] || len(low) > 4 && gpuModels[low[:4]] && strings.Trim(low[4:], "abcdefghijklmnopqrstuvwxyz") == ""
}

func wordsOf(text string) (words []textWord) {
	start, sep := -1, byte(' ')
	add := func(s string) {
		if s == "" {
			return
		}
		words = append(words, textWord{text: s, sep: sep})
		sep = ' '
	}
	end := func(at int) {
		if start < 0 {
			return
		}
		s := text[start:at]
		start = -1
		low := strings.ToLower(s)
		digits := len(low) - len(strings.TrimLeft(low, "0123456789"))
		rest := low[digits:]
		x := strings.LastIndexByte(low, 'x')
		switch _, known := meterWords[strings.TrimSuffix(rest, "s")]; {
		case strings.HasPrefix(rest, "xlarge"):
			add(s)
		case digits > 0 && (rest == "x" || rest == "×"):
			add(s[:digits] + "x")
		case digits > 0 && (strings.HasPrefix(rest, "x") || strings.HasPrefix(rest, "×")):
			add(s[:digits] + "x")
			add(strings.TrimLeft(s[digits:], "xX×"))
		case digits > 0 && known:
			add(s[:digits])
			add(s[digits:])
		case digits == 0 && x > 0 && isModel(low[:x]) && timesOf(low[x:]) > 0:
			add(s[:x])
			add(s[x:])
		default:
			add(s)
		}
	}
	isDigit := func(i int) bool { return i >= 0 && i < len(text) && '0' <= text[i] && text[i] <= '9' }
	for i := range len(text) {
		c := text[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || isDigit(i) || c >= 0x80
		if letter || c == '.' && start >= 0 && isDigit(start) && isDigit(i+1) {
			if start < 0 {
				start = i
			}
			continue
		}
		end(i)
		switch {
		case c == ' ', c == '-', c == '_', c == '\t', c == '.' && i+1 < len(text) && text[i+1] != ' ':
		default: // punctuation
			if len(words) > 0 {
				words[len(words)-1].ends = true
			}
		}
		sep = c
	}
	end(len(text))
	for _, name := range softwareNames {
		for i := 0; i+len(name) <= len(words); i++ {
			same := func(w textWord, s string) bool { return strings.EqualFold(w.text, s) }
			if !slices.EqualFunc(words[i:i+len(name)], name, same) {
				continue
			}
			last := words[i+len(name)-1]
			words[i] = textWord{text: strings.Join(name, " "), sep: words[i].sep, ends: last.ends, product: true}
			words = slices.Delete(words, i+1, i+len(name))
		}
	}
	return words
}
