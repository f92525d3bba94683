package manifest

import "slices"

// eu means the member states of the European Union in a list of countries. ISO 3166-1 reserves
// the code for the union, so no country will ever have it.
const eu = "EU"

// memberStates are the member states since 1 February 2020, by ISO 3166-1 alpha-2.
//
// Source: Eurostat, "Glossary: Country codes" (its EL is GR in ISO 3166-1),
// https://ec.europa.eu/eurostat/statistics-explained/index.php?title=Glossary:Country_codes
var memberStates = []string{
	"AT", "BE", "BG", "CY", "CZ", "DE", "DK", "EE", "ES", "FI", "FR", "GR", "HR", "HU",
	"IE", "IT", "LT", "LU", "LV", "MT", "NL", "PL", "PT", "RO", "SE", "SI", "SK",
}

// countries reads a list of countries. EU is replaced by its member states, so that the meaning
// of an event does not change when a country joins or leaves.
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
	return slices.Compact(out) // the list may name a member state and EU
}
