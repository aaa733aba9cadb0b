package handlers

import (
	"context"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/jsonscan"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/inert"
	"github.com/capi-refit/refit/updaters/kubeadmconfig"
)

// Verdicts that Cluster API reaches.
const (
	VerdictInPlace = "InPlace"
	VerdictReplace = "Replace"
	// VerdictUnknown: what refit's own updaters leave registered extensions may claim, and they were not asked.
	VerdictUnknown = "Unknown"
)

// Explanation says what will become of a change, field by field.
type Explanation struct {
	Verdict string `json:"verdict"`
	// Disruption is the worst of what the change takes: its disruption class. It is Replace unless the change is made in place, and empty if that is Unknown.
	Disruption disruption.ActionType `json:"disruption"`
	// Actions are what a change in place takes on the node, in the order in which it is done.
	Actions  []string           `json:"actions"`
	Fields   []FieldExplanation `json:"fields"`
	Response any                `json:"response"`
	// Class is what the change is, for policies that are not for all changes.
	Class schedule.Class `json:"-"`
}

// FieldExplanation says what will become of one changed field.
type FieldExplanation struct {
	Object  fieldset.Object `json:"object"`
	Path    string          `json:"path"`
	Covered bool            `json:"covered"`
	Updater string          `json:"updater"`
	// Claimants are the UpdaterRegistrations that claim a field of what waits, as refit's server was told last, which asks them. There are several where machines differ.
	Claimants []string `json:"claimants,omitempty"`
	// Disruption is the worst of the actions. It is Replace for a field that is not made in place.
	Disruption disruption.ActionType `json:"disruption"`
	Actions    []string              `json:"actions"`
	// Reason is why it is not made in place or, of one that means nothing to a node that runs, why not.
	Reason string `json:"reason"`
}

// Explain judges a CanUpdateMachineRequest or a CanUpdateMachineSetRequest, in JSON or YAML, as the hooks do.
func (e *Engine) Explain(ctx context.Context, request []byte) (*Explanation, error) {
	v, kind, _, err := e.judgeRequest(ctx, request)
	if err != nil {
		return nil, err
	}
	return v.explanation(kind), nil
}

// judgeRequest judges a request, and returns its kind and layout.
func (e *Engine) judgeRequest(ctx context.Context, request []byte) (v *verdict, kind string, l layout, err error) {
	body, err := yaml.YAMLToJSON(request)
	if err != nil {
		return nil, "", nil, &RequestError{Problem: "is neither JSON nor YAML: " + err.Error()}
	}
	if err := jsonscan.Check(body); err != nil {
		return nil, "", nil, &RequestError{Problem: "is not read: " + err.Error()}
	}
	var head struct {
		Kind string `json:"kind"`
	}
	if err := yaml.Unmarshal(body, &head); err != nil {
		return nil, "", nil, &RequestError{Field: "kind", Problem: "can't be read"}
	}
	layouts := map[string]layout{canUpdateMachineKind: machineLayout, canUpdateMachineSetKind: machineSetLayout}
	l, ok := layouts[head.Kind]
	if !ok {
		return nil, "", nil, &RequestError{Field: "kind", Problem: fmt.Sprintf("is %q and should be %s or %s", head.Kind, canUpdateMachineKind, canUpdateMachineSetKind)}
	}
	r, err := decodeRequest(body, head.Kind)
	if err != nil {
		return nil, "", nil, err
	}
	if v, err = e.judge(ctx, r, l); err == nil {
		v, err = e.reachable(ctx, v)
	}
	return v, head.Kind, l, err
}

// Left returns the first field of a CanUpdateMachineRequest that can't be made in place, and why; empty if all can.
func (e *Engine) Left(ctx context.Context, request []byte) (string, error) {
	x, err := e.Explain(ctx, request)
	if err != nil {
		return "", err
	}
	for _, f := range x.Fields {
		if !f.Covered {
			return fmt.Sprintf("%s of the %s: %s", f.Path, f.Object, f.Reason), nil
		}
	}
	return "", nil
}

// ExplainChange judges a change of machines like the subject, as the hooks do, but that it asks no registered extension: what these may claim is Unknown. It names no machine, so that it does not matter whether refit has a way to one.
// There is no response.
func (e *Engine) ExplainChange(ctx context.Context, s inplace.Subject, change fieldset.Change) (*Explanation, error) {
	decision, err := e.hear(ctx, s, change)
	if err != nil {
		return nil, err
	}
	x := explain(change, decision)
	e.doubt(ctx, s, change, x)
	return x, nil
}

func (v *verdict) explanation(kind string) *Explanation {
	x := explain(v.change, v.decision)
	x.Response = v.machineResponse()
	if kind == canUpdateMachineSetKind {
		x.Response = v.machineSetResponse()
	}
	return x
}

func explain(change fieldset.Change, decision updaters.Decision) *Explanation {
	x := &Explanation{
		Verdict: VerdictReplace, Disruption: disruption.Replace, Actions: []string{}, Fields: []FieldExplanation{}, Class: inplace.ClassOf(change, decision),
	}
	var takes [][]disruption.Action
	interrupts := false
	for _, f := range decision {
		fx := FieldExplanation{
			Object: f.Field.Object, Path: f.Field.String(), Covered: f.Covered(), Updater: f.Updater,
			Disruption: disruption.Replace, Actions: inWords(f.Actions), Reason: f.Reason,
		}
		if f.Covered() {
			fx.Disruption, fx.Reason = class(f.Actions, f.Interrupts), inertness(f)
			takes, interrupts = append(takes, f.Actions), interrupts || f.Interrupts
		}
		x.Fields = append(x.Fields, fx)
	}
	if decision.InPlace() {
		all := disruption.Merge(takes...)
		x.Verdict, x.Disruption, x.Actions = VerdictInPlace, class(all, interrupts), inWords(all)
	}
	return x
}

// inertness returns why a field takes no action, if that is known of it whatever its values.
func inertness(v updaters.Verdict) string {
	e, ok := inert.Lookup(v.Field.Object, kubeadmconfig.Location(v.Field)...)
	if v.Updater != inert.Name || !ok || e.Verdict != inert.NoAction {
		return ""
	}
	return e.Why
}

// class is the disruption class of a change: the worst of its actions. One that interrupts without them is like a restart.
func class(actions []disruption.Action, interrupts bool) disruption.ActionType {
	types := make([]disruption.ActionType, len(actions))
	for i, a := range actions {
		types[i] = a.Type
	}
	if interrupts {
		types = append(types, disruption.Restart)
	}
	return disruption.Worst(types...)
}

func inWords(actions []disruption.Action) []string {
	out := make([]string, len(actions))
	for i, a := range actions {
		out[i] = a.String()
	}
	return out
}
