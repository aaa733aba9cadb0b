// Package timesync brings to the node how it keeps its time: by systemd-timesyncd or by chrony, whichever it has, and by which
// servers.
package timesync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// Kind is the kind of resource.
type Kind struct{ host host.Host }

var _ kind.Kind = (*Kind)(nil)

// New returns the kind for a node.
func New(h host.Host) *Kind { return &Kind{host: h} }

// serverForm is what names and addresses of servers consist of. The rest would be something else in a line of a configuration.
var serverForm = regexp.MustCompile(`^[a-zA-Z0-9:][a-zA-Z0-9._:-]*$`)

// maxServer is how long a name may be, by RFC 1035.
const maxServer = 255

// The respects in which a node can keep its time otherwise than it should, under the names that people read.
const (
	aspectServers = "servers"
	aspectEnabled = "enabled"
	aspectActive  = kind.Active
)

// goal is what the node has to show.
type goal struct {
	// enabled reports whether the program runs. Nil: it stays as it is.
	enabled *bool
	// servers are asked for the time. None: those that the node comes with.
	servers []string
	// gone are those that the specs had before.
	gone []string
}

func goalOf(was, desired *node.NTP) goal {
	var g goal
	if was != nil {
		g.gone = was.Servers
	}
	if desired != nil {
		g.enabled, g.servers = &desired.Enabled, unique(desired.Servers)
	}
	return g
}

// unique returns the servers, each once, in their order.
func unique(servers []string) []string {
	var out []string
	for _, s := range servers {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// before is what Undo needs, and which aspects Make is to bring about.
type before struct {
	Aspects []string              `json:"aspects"`
	Program string                `json:"program"`
	Unit    string                `json:"unit"`
	State   host.UnitState        `json:"state"`
	Files   map[string]host.Saved `json:"files,omitempty"`
}

// Plan implements kind.Kind. When the specs no longer say anything, the servers are the node's own again, and the program runs or
// not as it did.
func (k *Kind) Plan(ctx context.Context, q kind.Question) (kind.Answer, error) {
	was, desired := ntpOf(q.Was), ntpOf(q.Desired)
	if was == nil && desired == nil {
		return kind.Answer{}, nil
	}
	p, err := k.find(ctx)
	if err != nil {
		return kind.Answer{}, err
	}
	if p.missing != "" {
		return p.answerMissing(q), nil
	}
	g := goalOf(was, desired)
	var scope, drift []string
	for _, a := range g.differences(p) {
		if q.Changed(func(was, desired *node.Resource) bool { return sameAspect(a, *was.NTP, *desired.NTP) }) {
			scope = append(scope, a)
		} else {
			drift = append(drift, a)
		}
	}
	if len(scope) == 0 {
		return kind.Answer{Drift: drift}, nil
	}
	return k.answer(q, g, p, scope, drift)
}

func ntpOf(r *node.Resource) *node.NTP {
	if r == nil {
		return nil
	}
	return r.NTP
}

func sameAspect(aspect string, was, desired node.NTP) bool {
	if aspect == aspectServers {
		return slices.Equal(unique(was.Servers), unique(desired.Servers))
	}
	return was.Enabled == desired.Enabled
}

// answerMissing is for a node that has no program that is known here. What is to be off, or no longer listed, is.
func (p program) answerMissing(q kind.Question) kind.Answer {
	desired := ntpOf(q.Desired)
	switch {
	case desired == nil || !desired.Enabled && !p.unsure:
		return kind.Answer{}
	case !q.Changed(func(was, desired *node.Resource) bool {
		return sameAspect(aspectServers, *was.NTP, *desired.NTP) && sameAspect(aspectEnabled, *was.NTP, *desired.NTP)
	}):
		return kind.Answer{Drift: []string{"missing"}}
	}
	return kind.Answer{Blocked: p.missing}
}

// differences says in which respects the node does not show the goal.
func (g goal) differences(p program) []string {
	var what []string
	if !p.conf.shows(g) {
		what = append(what, aspectServers)
	}
	if g.enabled != nil {
		if *g.enabled != p.state.Enabled() {
			what = append(what, aspectEnabled)
		}
		if *g.enabled != p.state.Running() {
			what = append(what, aspectActive)
		}
	}
	return what
}

func (k *Kind) answer(q kind.Question, g goal, p program, scope, drift []string) (kind.Answer, error) {
	answer := kind.Answer{Drift: drift}
	if answer.Blocked = blocked(g, p); answer.Blocked != "" {
		return answer, nil
	}
	var err error
	if answer.Actions, err = actions(q.Rules, g, p, scope); err != nil {
		answer.Blocked = err.Error()
		return answer, nil
	}
	answer.Operation = node.Write
	answer.Switches = g.enabled != nil && *g.enabled != p.state.Running()
	if q.Desired == nil {
		answer.Operation = node.Remove
	} else if was := ntpOf(q.Was); was != nil {
		differed := goalOf(was, was).differences(p)
		answer.Conflict = slices.ContainsFunc(scope, func(a string) bool { return slices.Contains(differed, a) })
	}
	b := before{Aspects: scope, Program: p.name, Unit: p.unit, State: p.state}
	if slices.Contains(scope, aspectServers) {
		b.Files = p.conf.files()
	}
	answer.Before, err = json.Marshal(b)
	return answer, err
}

// blocked returns why the node can't be made to show the goal, and what to do.
func blocked(g goal, p program) string {
	for _, s := range g.servers {
		if len(s) > maxServer || !serverForm.MatchString(s) {
			return fmt.Sprintf("%q is not the name or the address of a server: correct it", s)
		}
	}
	if g.enabled != nil && *g.enabled && p.state.Masked() {
		return fmt.Sprintf("%s is masked on the node, so it can't be started: unmask it", p.unit)
	}
	return ""
}

// actions returns what the change takes. A program is not restarted to learn what it does not run to use, and one that is only
// started reads the new configuration by that.
func actions(rules disruption.Rules, g goal, p program, scope []string) ([]disruption.Action, error) {
	all, err := rules.Domain(disruption.NTP)
	if err != nil {
		return nil, err
	}
	stops := g.enabled != nil && !*g.enabled
	var out []disruption.Action
	for _, a := range all {
		if slices.Contains(units, a.Unit) {
			if stops || !p.state.Running() || !slices.Contains(scope, aspectServers) {
				continue
			}
			a.Unit = p.unit // the rule means the unit that the node has
		}
		out = append(out, a)
	}
	if len(out) == 0 {
		out = []disruption.Action{{Type: disruption.None}}
	}
	return disruption.Merge(out), nil
}

// Make implements kind.Kind.
func (k *Kind) Make(ctx context.Context, c kind.Change) (note string, err error) {
	b, p, err := k.read(ctx, c)
	if err != nil {
		return "", err
	}
	g := goalOf(ntpOf(c.Was), ntpOf(c.Desired))
	if slices.Contains(b.Aspects, aspectServers) {
		if note, err = p.conf.bring(g); err != nil {
			return "", err
		}
	}
	if g.enabled == nil {
		return note, nil
	}
	return note, k.switchUnit(ctx, b, p, *g.enabled, *g.enabled)
}

// Undo implements kind.Kind.
func (k *Kind) Undo(ctx context.Context, c kind.Change) error {
	b, p, err := k.read(ctx, c)
	if err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(b.Files)) {
		if err := k.host.PutBack(path, b.Files[path]); err != nil {
			return err
		}
	}
	return k.switchUnit(ctx, b, p, b.State.Enabled(), b.State.Running())
}

func (k *Kind) read(ctx context.Context, c kind.Change) (before, program, error) {
	var b before
	if err := json.Unmarshal(c.Before, &b); err != nil {
		return b, program{}, errors.New("what the time synchronization was before can't be read")
	}
	p, err := k.find(ctx)
	if err != nil {
		return b, p, err
	}
	if p.name != b.Program || p.unit != b.Unit {
		return b, p, fmt.Errorf("the node kept its time by %s when the change was planned and no longer does: plan it again", b.Unit)
	}
	return b, p, nil
}

// switchUnit has the unit be enabled or not and run or not, where that is to be changed.
func (k *Kind) switchUnit(ctx context.Context, b before, p program, enabled, active bool) error {
	do := func(aspect string, is, want bool, yes, no string) error {
		if !slices.Contains(b.Aspects, aspect) || is == want {
			return nil
		}
		verb := no
		if want {
			verb = yes
		}
		if err := k.host.Units.Do(ctx, verb, p.unit); err != nil {
			return fmt.Errorf("systemctl %s %s: %w (see journalctl -u %s on the node)", verb, p.unit, err, p.unit)
		}
		return nil
	}
	if err := do(aspectEnabled, p.state.Enabled(), enabled, "enable", "disable"); err != nil {
		return err
	}
	return do(aspectActive, p.state.Running(), active, "start", "stop")
}
