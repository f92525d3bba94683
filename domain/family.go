package domain

import "strings"

// Family names the machines that replace each other first: the same GPU in other memory sizes and forms, or
// a cloud's instance types of one generation in other sizes. It is read from the name of a GPU model or an
// instance type:
//
//   - a model of the catalogue without what follows its memory or form: "H100" for "H100 SXM 80GB"
//   - "p5" for "p5.48xlarge" (AWS's instance family), "a3" for "a3-highgpu-8g" (Google's machine series)
//   - "ND v5" for "Standard_ND96isr_H100_v5" (Azure's series and version)
//
// Another name is a family by itself.
func Family(kind string) string {
	if m, ok := LookupGPU(kind); ok {
		words := strings.Fields(m.Name)
		for i, w := range words {
			if i > 0 && (strings.HasSuffix(w, "GB") || w == "SXM" || w == "PCIe" || w == "NVL") {
				return strings.Join(words[:i], " ")
			}
		}
		return m.Name
	}
	if size, ok := strings.CutPrefix(kind, "Standard_"); ok {
		letters := size[:len(size)-len(strings.TrimLeft(size, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"))]
		at := strings.LastIndex(size, "_v")
		if letters != "" && at > 0 && isNumber(size[at+len("_v"):]) {
			return letters + " " + size[at+1:]
		}
		return kind
	}
	for _, mark := range []string{".", "-"} {
		name, size, ok := strings.Cut(kind, mark)
		if ok && size != "" && len(name) >= 2 && name[0] >= 'a' && name[0] <= 'z' && strings.ContainsAny(name, "0123456789") &&
			!strings.Contains(name, " ") {
			return name
		}
	}
	return kind
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
