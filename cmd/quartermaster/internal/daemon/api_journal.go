package daemon

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"quartermaster/adapters/kafka"
	"quartermaster/cmd/quartermaster/internal/api"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

// What is asked is written to a journal before it is answered, and the journals of past minutes become events, one for
// each principal and minute. So a kill loses nothing that was answered, and a dashboard does not flood the log. A journal
// is removed once its events are in the log. If the process ends in between, its events are appended again; they have
// the name of the journal, and the fold keeps them once.
//
// The file is not forced to the disk for each answer: a power cut may lose the last seconds, a kill loses nothing.

// journalEnd ends the names of journals, which begin with the second at which the minute does.
const journalEnd = ".access.jsonl"

// mostLine bounds a line: it may name ten thousand workspaces.
const mostLine = 8 << 20

// entry is a line of a journal: what somebody asked once.
type entry struct {
	Principal  domain.Principal `json:"p"`
	Operation  string           `json:"o"`
	Workspaces []string         `json:"w,omitempty"` // of which something is seen; none: the whole estate
	Refused    bool             `json:"r,omitempty"`
	Position   string           `json:"at,omitempty"` // of the answer, unless it is that of the line before
	Digest     []byte           `json:"d,omitempty"`
}

func entryOf(who app.Principal, asked api.Asked) *entry {
	e := &entry{Principal: domain.Principal(who.Name), Operation: asked.Operation, Refused: asked.Refused, Digest: asked.Question[:]}
	if !who.Scope.IsWhole() {
		e.Workspaces = who.Scope.Parts()
	}
	if asked.Position != nil {
		e.Position = asked.Position.String()
	}
	return e
}

// journal is the directory of journals of an instance. It is safe for concurrent use.
type journal struct {
	dir, instance string
	lock          *os.File // see own

	mu     sync.Mutex
	minute int64 // of file, since 1970
	file   *os.File
	at     string // position of the last line
}

func openJournal(dir, instance string) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("journal of what is asked: %w", err)
	}
	return &journal{dir: dir, instance: instance}, nil
}

// own keeps other processes from the directory: they would take the journal of the present minute for one of the past,
// and remove it.
func (j *journal) own() error {
	lock, err := os.Open(j.dir)
	if err != nil {
		return fmt.Errorf("journal of what is asked: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return errors.Join(fmt.Errorf("another process has the journal in %s: give each instance its own name", j.dir), lock.Close())
	}
	j.lock = lock
	return nil
}

// unlock lets another use the directory.
func (j *journal) unlock() error { return j.lock.Close() }

// add writes a line, before the answer leaves.
func (j *journal) add(now time.Time, e *entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if minute := now.Unix() / 60; j.file == nil || j.minute != minute {
		if err := j.close(); err != nil {
			return err
		}
		name := fmt.Sprintf("%d-%s%s", minute*60, strings.ToLower(rand.Text()[:16]), journalEnd)
		file, err := os.OpenFile(filepath.Join(j.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		j.file, j.minute, j.at = file, minute, ""
	}
	if e.Position == j.at {
		e.Position = ""
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		// The line may be cut: begin another file.
		return errors.Join(err, j.close())
	}
	if e.Position != "" {
		j.at = e.Position
	}
	return nil
}

func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	file := j.file
	j.file = nil
	return file.Close()
}

// past returns the journals of past minutes, in order. It ends that of the present one if all is set.
func (j *journal) past(now time.Time, all bool) ([]string, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	open := ""
	if j.file != nil {
		if open = filepath.Base(j.file.Name()); all || j.minute < now.Unix()/60 {
			if err := j.close(); err != nil {
				return nil, err
			}
			open = ""
		}
	}
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, journalEnd) && name != open {
			names = append(names, name)
		}
	}
	return names, nil
}

// events returns what a journal says, by principal and workspace. A line that was cut was not answered.
func (j *journal) events(name string) ([]*domain.Envelope, error) {
	second, _, _ := strings.Cut(name, "-")
	from, err := strconv.ParseInt(second, 10, 64)
	if err != nil || from < 0 || from > 1<<33 {
		return nil, fmt.Errorf("%s: its name does not begin with a time", name)
	}
	data, err := os.ReadFile(filepath.Join(j.dir, name))
	if err != nil {
		return nil, err
	}
	if end := bytes.LastIndexByte(data, '\n'); end+1 < len(data) {
		data = data[:end+1]
	}
	window := domain.Interval{From: domain.Instant(from) * domain.Second, To: domain.Instant(from+60) * domain.Second}
	found := map[domain.Principal]*domain.AccessRecorded{}
	home := map[domain.Principal]string{}
	at := ""
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, mostLine)
	for n := 1; lines.Scan(); n++ {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		if e.Position != "" {
			at = e.Position
		}
		ev := found[e.Principal]
		if ev == nil {
			ev = &domain.AccessRecorded{Principal: e.Principal, Journal: strings.TrimSuffix(name, journalEnd), Window: window}
			found[e.Principal] = ev
		}
		workspace := app.Platform
		if len(e.Workspaces) > 0 {
			workspace = e.Workspaces[0]
		}
		if of, ok := home[e.Principal]; !ok || workspace < of {
			home[e.Principal] = workspace
		}
		i := slices.IndexFunc(ev.Asked, func(a domain.AccessRead) bool {
			return a.Operation == e.Operation && slices.Equal(a.Workspaces, e.Workspaces)
		})
		if i < 0 {
			i = len(ev.Asked)
			ev.Asked = append(ev.Asked, domain.AccessRead{Operation: e.Operation, Workspaces: e.Workspaces})
		}
		a := &ev.Asked[i]
		a.Count++
		if e.Refused {
			a.Refused++
		} else {
			a.Position = at
		}
		a.Digest = e.Digest
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var out []*domain.Envelope
	for who, ev := range found {
		slices.SortFunc(ev.Asked, func(a, b domain.AccessRead) int {
			return cmp.Or(strings.Compare(a.Operation, b.Operation), slices.Compare(a.Workspaces, b.Workspaces))
		})
		out = append(out, &domain.Envelope{Time: window.To, Subject: string(who), Workspace: home[who], Event: ev})
	}
	slices.SortFunc(out, func(a, b *domain.Envelope) int { return strings.Compare(a.Subject, b.Subject) })
	return out, nil
}

// remove removes a journal whose events are in the log.
func (j *journal) remove(name string) error {
	err := os.Remove(filepath.Join(j.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// setAside keeps a journal that cannot be read for a person.
func (j *journal) setAside(name string) error {
	return os.Rename(filepath.Join(j.dir, name), filepath.Join(j.dir, name+".unreadable"))
}

// keepEvery is how often journals of past minutes become events.
const keepEvery = 5 * time.Second

// keep makes events of the journals of past minutes until ctx ends.
func (d *doorman) keep(ctx context.Context) {
	if d.journal == nil {
		return
	}
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		d.keepPast(ctx, false)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// keepLast makes events of all journals, once nothing is asked any more. What fails is kept by the next start.
func (d *doorman) keepLast(ctx context.Context) {
	if d.journal == nil {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), keepEvery)
	defer stop()
	d.keepPast(ctx, true)
}

// keepPast makes events of journals. Calls do not overlap.
func (d *doorman) keepPast(ctx context.Context, all bool) {
	names, err := d.journal.past(time.Now(), all)
	for _, name := range names {
		if err == nil {
			err = d.keepOne(ctx, name)
		}
	}
	switch {
	case err == nil:
		d.told = ""
	case err.Error() != d.told:
		d.told = err.Error()
		d.log.Error("what was asked is not in the log yet", "error", err)
	}
}

// keepOne makes events of a journal. What can never be in the log does not keep the rest out of it.
func (d *doorman) keepOne(ctx context.Context, name string) error {
	if d.stream == nil {
		d.stream = d.conn.Stream("api-" + d.journal.instance)
	}
	if d.stream.Held() > 0 { // some of what was appended last time was not acknowledged
		if err := d.stream.Flush(ctx); err != nil {
			return err
		}
	}
	if d.sending != "" {
		sent := d.sending
		if err := d.finish(sent); err != nil {
			return err
		}
		if d.sending = ""; sent == name {
			return nil
		}
	}
	all, err := d.journal.events(name)
	if errors.Is(err, fs.ErrNotExist) { // it was the one that was sent
		return nil
	}
	if unread := (*fs.PathError)(nil); errors.As(err, &unread) { // such as too many open files
		return err
	}
	d.finish = d.journal.remove
	never := func(what error) {
		d.finish = d.journal.setAside
		d.log.Error("what was asked can never be in the log; its journal was set aside", "journal", name, "error", what)
	}
	if err != nil {
		never(err)
	}
	var events []*domain.Envelope
	for _, e := range all {
		if err := valid(e); err != nil {
			never(err)
			continue
		}
		events = append(events, e)
	}
	err = nil
	if len(events) > 0 {
		err = d.stream.Append(ctx, events...)
	}
	if large := (*kafka.TooLargeError)(nil); errors.As(err, &large) { // nothing was appended
		err = nil
		for _, e := range events {
			one := d.stream.Append(ctx, e)
			if errors.As(one, &large) {
				never(one)
			} else if one != nil {
				return one // all again next time; the fold keeps them once
			}
		}
	}
	if errors.Is(err, kafka.ErrUndelivered) {
		d.sending = name
	}
	if err != nil {
		return err
	}
	return d.finish(name)
}

// valid returns why an event can never be in the log, nil if it can.
func valid(e *domain.Envelope) error {
	numbered := *e
	numbered.Source, numbered.Incarnation, numbered.Sequence = "quartermaster/api", 1, 1
	return domain.Validate(&numbered)
}
