package daemon

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"quartermaster/adapters/configfile"
	"quartermaster/adapters/wire"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/config"
	"quartermaster/domain"
)

const (
	// webhookTimeout bounds one call, from dialling to the end of the answer. A receiver with
	// more to do should accept the event and process it later.
	webhookTimeout = 10 * time.Second
	// maxRetryAfter bounds the Retry-After of a receiver, because other events wait behind.
	maxRetryAfter = 5 * time.Minute
	// mostAnswer is how much of an answer is read, and shownAnswer how much is shown.
	mostAnswer, shownAnswer = 64 << 10, 200
)

// reminderType is the CloudEvents type of a reminder, which is not an event of the log: it
// reports that something has not happened.
const reminderType = "quartermaster.reminder.close"

// webhook is an address that receives events: one POST for each event in CloudEvents
// JSON, with the headers
//
//	Content-Type             application/cloudevents+json
//	Idempotency-Key          the same for each delivery of an event: the
//	                         SHA-256, in hex, of source, a line feed and id
//	Quartermaster-Signature  sha256= and the HMAC-SHA-256 of the body, in hex, with
//	                         the content of the secret file; absent without one
//
// An answer of 2xx is final: the event is delivered. 408, 425, 429, 5xx and no answer are
// retried, 429 and 503 when Retry-After says so. Redirects are not followed: they and
// everything else are permanent failures. Delivery is at least once and, within a
// partition of the log, in order.
type webhook struct {
	name   string
	url    string
	types  []string
	secret []byte
	to     audience
}

// receivers calls receivers of events. Redirects are not followed.
var receivers = &http.Client{
	Timeout:       webhookTimeout,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// newWebhooks returns the configured webhooks.
func newWebhooks(cfgs []config.Webhook) ([]*webhook, error) {
	var hooks []*webhook
	for i, c := range cfgs {
		if c.Name == "" || slices.ContainsFunc(cfgs[:i], func(d config.Webhook) bool { return d.Name == c.Name }) {
			return nil, fmt.Errorf("webhook %q: every webhook needs its own name, because its position in the log is stored under it", c.Name)
		}
		for _, t := range c.Types {
			if t != reminderType && domain.TopicOf(domain.Type(t)) == "" {
				return nil, fmt.Errorf("webhook %q: no event type %q", c.Name, t)
			}
		}
		w := &webhook{name: c.Name, url: c.URL, types: c.Types, to: newAudience(c.Workspaces, c.Severity)}
		if c.SecretFile != "" {
			secret, err := configfile.Secret(c.SecretFile)
			if err != nil {
				return nil, fmt.Errorf("webhook %q: %w", c.Name, err)
			}
			w.secret = []byte(secret)
		}
		hooks = append(hooks, w)
	}
	return hooks, nil
}

// reminded reports whether the webhook receives reminders.
func (w *webhook) reminded() bool {
	return len(w.types) == 0 || slices.Contains(w.types, reminderType)
}

// eventTypes are the types of the events that it receives.
func (w *webhook) eventTypes() []domain.Type {
	if len(w.types) == 0 {
		return noticeTypes
	}
	var types []domain.Type
	for _, t := range w.types {
		if t != reminderType {
			types = append(types, domain.Type(t))
		}
	}
	return types
}

// reaction tells the receiver of events. What it hears of an incident is judged by the rows of h.
func (w *webhook) reaction(h *app.Conn) reaction {
	return reaction{
		name: "webhook." + w.name, group: "quartermaster.webhook." + w.name, types: w.eventTypes(),
		do: func(ctx context.Context, rec *domain.Record, env *domain.Envelope) error {
			incident := slices.Contains(incidentTypes, env.Event.Type())
			if !w.to.of(env.Workspace) || !incident && len(w.types) == 0 && alert(env.Event) == "" {
				return nil
			}
			if incident {
				if told, err := news(ctx, h, rec, env, &w.to); err != nil || !told {
					return err
				}
			}
			id, err := wire.ID(env)
			if err != nil {
				return backoff.Permanent(err)
			}
			body, err := wire.CloudEvent(env)
			if err != nil {
				return backoff.Permanent(err)
			}
			return w.post(held(ctx), env.Source, id, body)
		},
	}
}

// post sends one event to the receiver. An error is a [backoff.Permanent] one where retrying is
// useless, or wraps a [backoff.RetryAfterError] where it must wait. Errors never contain any part
// of the address, which may be a secret, unless the receiver's own answer does.
func (w *webhook) post(ctx context.Context, source, id string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return backoff.Permanent(fmt.Errorf("webhook %s: its url cannot be used", w.name))
	}
	key := sha256.Sum256([]byte(source + "\n" + id))
	req.Header.Set("Content-Type", "application/cloudevents+json")
	req.Header.Set("Idempotency-Key", hex.EncodeToString(key[:]))
	req.Header.Set("User-Agent", "quartermaster")
	if w.secret != nil {
		mac := hmac.New(sha256.New, w.secret)
		mac.Write(body)
		req.Header.Set("Quartermaster-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	}
	return call(req, "webhook "+w.name)
}

// call sends a request to a receiver, as [webhook] says.
func call(req *http.Request, who string) error {
	res, err := receivers.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %s", who, noAnswer(err, req.URL))
	}
	defer res.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(res.Body, mostAnswer)) // a read error does not matter: the status is known
	if res.StatusCode/100 == 2 {
		return nil
	}
	err = fmt.Errorf("%s answered %s: %.*q", who, res.Status, shownAnswer, strings.TrimSpace(string(answer)))
	switch {
	case res.StatusCode == http.StatusTooManyRequests, res.StatusCode == http.StatusServiceUnavailable:
		if d := retryAfter(res.Header.Get("Retry-After"), time.Now()); d > 0 {
			return fmt.Errorf("%w: %w", err, &backoff.RetryAfterError{Duration: d})
		}
		return err
	case res.StatusCode/100 == 5, res.StatusCode == http.StatusRequestTimeout, res.StatusCode == http.StatusTooEarly:
		return err
	case res.StatusCode/100 == 3:
		return backoff.Permanent(fmt.Errorf("%w: redirects are not followed; give the final address as url", err))
	}
	return backoff.Permanent(err)
}

// noAnswer describes why an address did not answer, without any part of it.
func noAnswer(err error, address *url.URL) string {
	var (
		dns      *net.DNSError
		dial     *net.OpError
		hostname x509.HostnameError
		u        *url.Error
	)
	switch {
	case errors.As(err, &u) && u.Timeout():
		return fmt.Sprintf("no answer within %s", webhookTimeout)
	case errors.As(err, &dns) && dns.IsNotFound:
		return "its host is not known"
	case errors.As(err, &dns):
		return "its host cannot be looked up"
	case errors.As(err, &hostname):
		return "its certificate is for another host"
	case errors.As(err, &dial):
		err = fmt.Errorf("%s: %w", dial.Op, dial.Err)
	case u != nil:
		err = u.Err
	}
	text := err.Error()
	for _, part := range []string{address.String(), address.RequestURI(), address.Host, address.Hostname()} {
		if len(part) > 1 { // not the path /
			text = strings.ReplaceAll(text, part, "…")
		}
	}
	return text
}

// retryAfter parses the header of that name (RFC 9110, 10.2.3), bounded; 0 without a valid one.
func retryAfter(text string, now time.Time) time.Duration {
	var d time.Duration
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		d = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter)
}
