package cli

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"

	"quartermaster/adapters/configfile"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

// writtenProposal is the document of a recommendation that a person wrote.
type writtenProposal struct {
	Recommendation string   `yaml:"recommendation"` // default: a digest of the others
	Kind           string   `yaml:"kind"`
	Summary        string   `yaml:"summary"`
	Clusters       []string `yaml:"clusters"`
	WhyMore        string   `yaml:"why_more"`
	From           string   `yaml:"from"`
	To             string   `yaml:"to"`
	Steps          []string `yaml:"steps"`
	Cost           string   `yaml:"cost"`
	Saving         string   `yaml:"saving"`
	SavingLow      string   `yaml:"saving_low"`
	SavingHigh     string   `yaml:"saving_high"`
	Expires        string   `yaml:"expires"`
	Plan           string   `yaml:"plan"`
	Supersedes     []string `yaml:"supersedes"`
	Incidents      []string `yaml:"incidents"`
	Findings       []string `yaml:"findings"`
}

// parseProposal reads the document of a recommendation.
func parseProposal(name string, text []byte) (*domain.RecommendationMade, error) {
	var w writtenProposal
	f, err := configfile.Parse(name, text, "", func(string) string { return "" }, &w)
	if err != nil {
		return nil, &app.InvalidError{Err: err}
	}
	slices.Sort(w.Clusters)
	made := &domain.RecommendationMade{
		Kind: w.Kind, Summary: w.Summary, Clusters: slices.Compact(w.Clusters), WhyMore: w.WhyMore, From: w.From, To: w.To, Plan: w.Plan,
		Supersedes: w.Supersedes, Incidents: w.Incidents, Findings: w.Findings,
	}
	money := func(field, text string, into *domain.Money) {
		if text == "" {
			return
		}
		if *into, err = domain.ParseMoney(text); err != nil {
			f.Add(field, "%v", err)
		}
	}
	money("cost", cmp.Or(w.Cost, "0 USD"), &made.Cost)
	money("saving", w.Saving, &made.Saving)
	money("saving_low", cmp.Or(w.SavingLow, w.Saving), &made.SavingLow)
	money("saving_high", cmp.Or(w.SavingHigh, w.Saving), &made.SavingHigh)
	if w.Expires != "" {
		if made.Expires, err = domain.ParseTime(w.Expires); err != nil {
			f.Add("expires", "%v", err)
		}
	}
	for _, field := range [][2]string{{"kind", w.Kind}, {"summary", w.Summary}} {
		if field[1] == "" {
			f.Add(field[0], "is missing")
		}
	}
	if made.Document, err = json.Marshal(struct {
		Steps []string `json:"steps"`
	}{append([]string{}, w.Steps...)}); err != nil {
		return nil, err
	}
	made.Recommendation = w.Recommendation
	if made.Recommendation == "" {
		content, err := json.Marshal(made)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(content)
		made.Recommendation = "r-" + hex.EncodeToString(sum[:8])
	}
	// What the event refuses is a field of the document, by the same name.
	var wrong *domain.InvalidError
	if err := f.Err(); err != nil {
		return nil, &app.InvalidError{Err: err}
	}
	env := domain.Envelope{Time: 1, Workspace: "x", Event: made}
	made.Requester = "x"
	if err := domain.Validate(&env); errors.As(err, &wrong) {
		f.Add(wrong.Field, "%s", wrong.Problem)
		return nil, &app.InvalidError{Err: f.Err()}
	}
	return made, nil
}
