package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"quartermaster/adapters/httpapi"
	"quartermaster/cmd/quartermaster/internal/app"
)

// use calls a use case of the service itself, with the log and the rows that it has open.
func (s *service) use(do func(*app.Caller) error) (err error) {
	if !s.ready.Load() {
		return errNotCaughtUp
	}
	on := s.conn.Sharing()(app.Everyone)
	defer func() { err = errors.Join(err, on.Close()) }()
	return do(on.For(app.Everyone))
}

// commands returns the commands that clusters may carry out now.
func (g *gateway) commands(ctx context.Context) (all []httpapi.Command, err error) {
	err = g.use(func(c *app.Caller) error {
		open, err := c.OpenCommands(ctx, "", app.Now())
		if err != nil {
			return err
		}
		for i := range open {
			body, err := json.Marshal(&open[i])
			if err != nil {
				return err
			}
			all = append(all, httpapi.Command{Cluster: open[i].Cluster, Body: body})
		}
		return nil
	})
	return all, err
}

// acknowledge records what a cluster did with a command.
func (g *gateway) acknowledge(ctx context.Context, caller httpapi.Caller, id string, ack httpapi.Acknowledgement) error {
	err := g.use(func(c *app.Caller) error {
		return c.AcknowledgeCommand(ctx, caller.Cluster, caller.KeyID, id, app.Acknowledgement(ack), app.Now())
	})
	var status int
	switch {
	case errors.Is(err, app.ErrCommandEnded):
		status = http.StatusGone
	case app.KindOf(err) == app.KindConflict:
		status = http.StatusConflict
	case app.KindOf(err) == app.KindNotFound:
		status = http.StatusNotFound
	case app.KindOf(err) == app.KindInvalid:
		status = http.StatusBadRequest
	default:
		return err
	}
	return httpapi.Refuse(status, err)
}
