package handlers

import (
	"context"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/internal/fieldset"
)

// Verdicts that Cluster API reaches.
const (
	VerdictInPlace = "InPlace"
	VerdictReplace = "Replace"
)

// Explanation says what will become of a change, field by field.
type Explanation struct {
	Verdict  string             `json:"verdict"`
	Fields   []FieldExplanation `json:"fields"`
	Response any                `json:"response"`
}

// FieldExplanation says what will become of one changed field.
type FieldExplanation struct {
	Object  fieldset.Object `json:"object"`
	Path    string          `json:"path"`
	Covered bool            `json:"covered"`
	Updater string          `json:"updater"`
	Actions []string        `json:"actions"`
	Reason  string          `json:"reason"`
}

// Explain judges a CanUpdateMachineRequest or a CanUpdateMachineSetRequest, in JSON or YAML, as the hooks do.
func (e *Engine) Explain(ctx context.Context, request []byte) (*Explanation, error) {
	body, err := yaml.YAMLToJSON(request)
	if err != nil {
		return nil, &RequestError{Problem: "is neither JSON nor YAML: " + err.Error()}
	}
	var head struct {
		Kind string `json:"kind"`
	}
	if err := yaml.Unmarshal(body, &head); err != nil {
		return nil, &RequestError{Field: "kind", Problem: "can't be read"}
	}
	layouts := map[string]layout{canUpdateMachineKind: machineLayout, canUpdateMachineSetKind: machineSetLayout}
	l, ok := layouts[head.Kind]
	if !ok {
		return nil, &RequestError{Field: "kind", Problem: fmt.Sprintf("is %q and should be %s or %s", head.Kind, canUpdateMachineKind, canUpdateMachineSetKind)}
	}
	r, err := decodeRequest(body, head.Kind)
	if err != nil {
		return nil, err
	}
	v, err := e.judge(ctx, r, l)
	if err != nil {
		return nil, err
	}
	return v.explanation(head.Kind), nil
}

func (v *verdict) explanation(kind string) *Explanation {
	x := &Explanation{Verdict: VerdictReplace, Fields: []FieldExplanation{}, Response: v.machineResponse()}
	if kind == canUpdateMachineSetKind {
		x.Response = v.machineSetResponse()
	}
	if v.decision.InPlace() {
		x.Verdict = VerdictInPlace
	}
	for _, f := range v.decision {
		fx := FieldExplanation{
			Object: f.Field.Object, Path: f.Field.String(), Covered: f.Covered(), Updater: f.Updater, Actions: []string{}, Reason: f.Reason,
		}
		for _, a := range f.Actions {
			fx.Actions = append(fx.Actions, a.String())
		}
		x.Fields = append(x.Fields, fx)
	}
	return x
}
