// Package kubelet brings the specs' arguments of the kubelet to a node that kubeadm has set up, and asks a kubelet whether it is
// well.
//
// kubeadm joins its own arguments and the specs' extra arguments in one file, once, when it makes the node; what is changed here is
// that file, so that it holds what kubeadm would have written. Where an extra argument has taken the place of one of kubeadm's own,
// that one is remembered in a file of the agent's, and comes back when the specs drop theirs.
package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// Unit is the name of the kubelet's unit.
const Unit = "kubelet.service"

// Kind is the kind of resource.
type Kind struct{ host host.Host }

var _ kind.Kind = (*Kind)(nil)

// New returns the kind for a node.
func New(h host.Host) *Kind { return &Kind{host: h} }

// before is what Undo needs.
type before struct {
	Flags []byte     `json:"flags"`
	State host.State `json:"state"`
	// Extended are the extended attributes of the file of arguments.
	Extended host.Extended `json:"extended"`
	Memory   displaced     `json:"memory,omitempty"`
	// Resources are the kubelet's own files that have to go for it to start with other arguments.
	Resources map[string]host.Saved `json:"resources,omitempty"`
	// Known is what the plan knew.
	Known bool `json:"known"`
}

// Plan implements kind.Kind. A kubelet that the specs no longer speak of is left as it is: they do as long as the machine is one of
// kubeadm's, with an empty list when there are no extra arguments.
func (k *Kind) Plan(_ context.Context, q kind.Question) (kind.Answer, error) {
	if q.Desired == nil {
		return kind.Answer{}, nil
	}
	was, want := wantedOf(q.Was), wantedOf(q.Desired)
	file, err := k.host.Save(FlagsFile)
	if err != nil {
		return kind.Answer{}, err
	}
	if !file.State.Exists {
		return absent(was, want), nil
	}
	f, err := parseFlags(file.Data)
	if err != nil {
		return blockedIf(!want.same(was), err), nil
	}
	if !q.Changed(func(_, _ *node.Resource) bool { return want.same(was) }) {
		return kind.Answer{Drift: dashed(f.differs(want))}, nil
	}
	if err := checkArgs(want.args); err != nil {
		return kind.Answer{Blocked: err.Error()}, nil
	}
	memory, err := k.loadMemory()
	if err != nil {
		return kind.Answer{}, err
	}
	e := edit{was: was, want: want, known: q.Known}
	next, _ := e.apply(f, memory)
	names := changed(f, next)
	if len(names) == 0 {
		return kind.Answer{}, nil
	}
	if lost := e.lost(memory); len(lost) > 0 {
		return kind.Answer{Blocked: fmt.Sprintf("kubeadm has a value of its own for %s, which is not known since the specs have set another one "+
			"from the start; keep the argument in the specs, or have the machine replaced", strings.Join(dashed(lost), ", "))}, nil
	}
	return k.propose(q, names, before{Flags: file.Data, State: file.State, Extended: file.Extended, Memory: memory, Known: q.Known}, len(f.differs(was)) > 0)
}

// propose answers that the arguments are to be changed.
func (k *Kind) propose(q kind.Question, names []string, b before, conflict bool) (kind.Answer, error) {
	actions, err := q.Rules.Domain(disruption.KubeletArguments)
	if err != nil {
		return kind.Answer{Blocked: err.Error()}, nil
	}
	drain, err := k.resources(names, &b)
	if err != nil {
		return kind.Answer{}, err
	}
	if drain {
		actions = disruption.Merge(actions, []disruption.Action{{Type: disruption.Drain}})
	}
	if len(b.Resources) > 0 && k.host.Units == nil {
		return kind.Answer{Blocked: "the node has no systemctl, so the kubelet can't be stopped to change how it manages CPUs and memory"}, nil
	}
	raw, err := json.Marshal(b)
	return kind.Answer{Operation: node.Write, Conflict: q.Was != nil && conflict, Actions: actions, Before: raw}, err
}

// absent answers for a node without the file of arguments.
func absent(was, want wanted) kind.Answer {
	if want.same(was) {
		return kind.Answer{Drift: dashed(want.names)}
	}
	return kind.Answer{Blocked: fmt.Sprintf("%s is missing: this is not a kubeadm node, so its kubelet's arguments can't be changed here", FlagsFile)}
}

func blockedIf(changed bool, err error) kind.Answer {
	if changed {
		return kind.Answer{Blocked: err.Error()}
	}
	return kind.Answer{Drift: []string{FlagsFile}}
}

// dashed returns names as people know them.
func dashed(names []string) []string {
	var out []string
	for _, n := range names {
		out = append(out, "--"+n)
	}
	return out
}

// Make implements kind.Kind. What is displaced is written down before the arguments are changed, and what came back is forgotten
// after that, so that nothing is lost whenever the agent dies.
func (k *Kind) Make(ctx context.Context, c kind.Change) (string, error) {
	b, err := readBefore(c)
	if err != nil {
		return "", err
	}
	data, state, err := k.host.ReadFile(FlagsFile)
	if err != nil {
		return "", err
	}
	if !state.Exists {
		return "", fmt.Errorf("%s is missing", FlagsFile)
	}
	f, err := parseFlags(data)
	if err != nil {
		return "", err
	}
	memory, err := k.loadMemory()
	if err != nil {
		return "", err
	}
	next, kept := edit{was: wantedOf(c.Was), want: wantedOf(c.Desired), known: b.Known}.apply(f, memory)
	if err := k.saveMemory(merged(memory, kept)); err != nil {
		return "", err
	}
	write := func() error { return k.host.WriteFile(FlagsFile, next.bytes(), state) }
	if err := k.stoppedFor(ctx, b, write, k.dropResources); err != nil {
		return "", err
	}
	return "", k.saveMemory(kept)
}

// Undo implements kind.Kind.
func (k *Kind) Undo(ctx context.Context, c kind.Change) error {
	b, err := readBefore(c)
	if err != nil {
		return err
	}
	write := func() error {
		return k.host.PutBack(FlagsFile, host.Saved{Data: b.Flags, State: b.State, Extended: b.Extended})
	}
	if err := k.stoppedFor(ctx, b, write, k.putBackResources); err != nil {
		return err
	}
	return k.saveMemory(b.Memory)
}

func readBefore(c kind.Change) (before, error) {
	var b before
	if err := json.Unmarshal(c.Before, &b); err != nil {
		return before{}, errors.New("what the kubelet's arguments were before can't be read")
	}
	return b, nil
}
