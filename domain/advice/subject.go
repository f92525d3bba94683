package advice

import (
	"cmp"
	"strings"
)

// Subject is what a finding is about. Empty fields are not part of it; the zero subject is the fleet.
type Subject struct {
	Workspace  string `json:"workspace,omitempty"`
	Provider   string `json:"provider,omitempty"`
	Region     string `json:"region,omitempty"`
	Cluster    string `json:"cluster,omitempty"`
	Fabric     string `json:"fabric,omitempty"`
	Node       string `json:"node,omitempty"`
	GPU        string `json:"gpu,omitempty"`
	GPUModel   string `json:"gpu_model,omitempty"`
	Class      string `json:"class,omitempty"` // of workloads
	Model      string `json:"model,omitempty"` // that is served or trained
	Deployment string `json:"deployment,omitempty"`
	Component  string `json:"component,omitempty"` // of costs
	// Name is the commitment, quota, budget, stream or collector that the finding is about.
	Name string `json:"name,omitempty"`
}

// fields are the words of [Subject.String], in their order.
func (s *Subject) fields() [13][2]string {
	return [...][2]string{
		{"workspace", s.Workspace}, {"provider", s.Provider}, {"region", s.Region}, {"cluster", s.Cluster},
		{"fabric", s.Fabric}, {"node", s.Node}, {"gpu", s.GPU}, {"gpu_model", s.GPUModel}, {"class", s.Class},
		{"model", s.Model}, {"deployment", s.Deployment}, {"component", s.Component}, {"name", s.Name},
	}
}

// String returns the subject as one text, such as "cluster=iowa node=n1"; "fleet" for the zero one. Blanks, quotes and
// equal signs of names are percent-encoded, so that different subjects have different texts.
func (s Subject) String() string {
	var b strings.Builder
	for _, f := range s.fields() {
		if f[1] == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(f[0])
		b.WriteByte('=')
		b.WriteString(encoded.Replace(f[1]))
	}
	return cmp.Or(b.String(), "fleet")
}

var encoded = strings.NewReplacer("%", "%25", " ", "%20", "=", "%3D", "\n", "%0A", "\r", "%0D", "\t", "%09", "\"", "%22")

// Compare orders subjects by their fields.
func (s Subject) Compare(t Subject) int {
	a, b := s.fields(), t.fields()
	for i := range a {
		if c := strings.Compare(a[i][1], b[i][1]); c != 0 {
			return c
		}
	}
	return 0
}
