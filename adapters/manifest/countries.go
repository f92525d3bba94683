package manifest

import "slices"

// eu stands for the member states of the European Union in a list of countries. ISO
// 3166-1 keeps the code reserved for the union, so no country will ever have it.
const eu = "EU"

// memberStates are those since 1 February 2020, by ISO 3166-1 alpha-2.
//
// Source: Eurostat, "Glossary: Country codes" (its EL is GR in ISO 3166-1),
// https://ec.europa.eu/eurostat/statistics-explained/index.php?title=Glossary:Country_codes
var memberStates = []string{
	"AT", "BE", "BG", "CY", "CZ", "DE", "DK", "EE", "ES", "FI", "FR", "GR", "HR", "HU",
	"IE", "IT", "LT", "LU", "LV", "MT", "NL", "PL", "PT", "RO", "SE", "SI", "SK",
}

// countries reads a list of countries. EU becomes its member states, so that an event
// names countries alone and means the same whoever joins or leaves later.
func (e entry) countries(key string) []string {
	var out []string
	for _, s := range e.texts(key) {
		if s == eu {
			out = append(out, memberStates...)
		} else {
			out = append(out, s)
		}
	}
	if !slices.Contains(e.texts(key), eu) {
		return out
	}
	slices.Sort(out)
	return slices.Compact(out) // a member state may stand beside EU
}
