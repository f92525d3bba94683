package projections

import "quartermaster/domain"

// Declared returns what the rows say about the thing that an event is about,
// in effect when the event would take effect: the version that the event would
// replace, nil when there is none or the event is a measurement. An event that
// takes effect at once is compared with the latest.
func Declared(v View, env *domain.Envelope) (*Version, error) {
	scope, err := env.Key()
	if err != nil {
		return nil, err
	}
	p, ok := place(env, scope)
	if !ok {
		return nil, nil
	}
	row, err := v.Get(p.key)
	if err != nil {
		return nil, err
	}
	h, ok := row.(*History)
	if !ok {
		return nil, nil
	}
	if p.effective == 0 {
		return h.Latest(), nil
	}
	return h.At(p.effective), nil
}
