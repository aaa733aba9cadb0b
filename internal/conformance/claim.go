package conformance

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/fieldset"
)

// claim is one patch of an answer, with the object that it is for.
type claim struct {
	member

	patch            runtimehooksv1.Patch
	current, desired map[string]any
	raw              []byte // current, as it was sent
	after            map[string]any
}

// breach is a law that is broken, and what shows it.
type breach struct {
	law      string
	evidence string
}

// judgement is what the patches of an answer do.
type judgement struct {
	breaches []breach
	// after are the current objects that patches were applied to, by their fields.
	after map[string]map[string]any
	// changes are the fields that the patches change, of what may change.
	changes []changed
}

// changed is a field that a patch changes.
type changed struct{ member, path string }

// String names the field with its object.
func (c changed) String() string { return c.path + " of " + c.member }

// judge applies the patches of an answer as Cluster API does, and says what is wrong with them.
func judge(ctx context.Context, x *exchange) judgement {
	j := judgement{after: map[string]map[string]any{}}
	current, err := x.request.objects("current")
	desired, errDesired := x.request.objects("desired")
	if err = errors.Join(err, errDesired); err != nil {
		return j // the requests are our own, or were read
	}
	for _, m := range members[x.request.hook] {
		p, ok := x.patches[m.field]
		if !ok {
			continue
		}
		c := &claim{member: m, patch: p, raw: current[m.field]}
		c.current, c.desired = decodeObject(current[m.field]), decodeObject(desired[m.field])
		j.judge(ctx, c)
	}
	return j
}

func decodeObject(raw []byte) map[string]any {
	v, err := fieldset.Decode(raw)
	object, ok := v.(map[string]any)
	if err != nil || !ok {
		return map[string]any{}
	}
	return object
}

func (j *judgement) breach(l Law, c *claim, format string, args ...any) {
	j.breaches = append(j.breaches, breach{l.Name, c.field + "Patch: " + fmt.Sprintf(format, args...)})
}

func (j *judgement) judge(ctx context.Context, c *claim) {
	if problem := kindProblem(c.patch); problem != "" {
		j.breach(lawPatchKind, c, "%s", problem)
		return
	}
	if err := c.apply(); err != nil {
		j.breach(lawPatchApplies, c, "%s", quote(err.Error()))
		return
	}
	j.after[c.field] = c.after
	if !reflect.DeepEqual(without(c.current, c.root()...), without(c.after, c.root()...)) {
		j.breach(lawPatchInside, c, "it changes what is outside of %s", strings.Join(c.root(), "."))
	}
	j.compare(ctx, c)
}

// compare looks at the fields that the patch changes.
func (j *judgement) compare(ctx context.Context, c *claim) {
	wanted, err := c.compare(ctx, c.current, c.desired)
	differs, errDiffers := c.compare(ctx, c.current, c.after)
	left, errLeft := c.compare(ctx, c.after, c.desired)
	if err = errors.Join(err, errDiffers, errLeft); err != nil {
		j.breach(lawPatchDiffers, c, "what it changes can't be compared: %s", quote(err.Error()))
		return
	}
	for _, f := range differs {
		j.changes = append(j.changes, changed{c.field, f.String()})
		switch {
		case !contains(wanted, f):
			j.breach(lawPatchDiffers, c, "it changes %s, which is the same in current and desired", quote(f.String()))
		case slices.ContainsFunc(left, func(l fieldset.Field) bool { return related(f.Path, l.Path) }):
			j.breach(lawPatchReaches, c, "it changes %s, which is still not what desired has", quote(f.String()))
		}
	}
}

// compare returns the fields in which two forms of the object differ, of what may change.
func (c *claim) compare(ctx context.Context, a, b map[string]any) ([]fieldset.Field, error) {
	change, _, err := fieldset.Compare(ctx, c.object, c.spec(a), c.spec(b))
	return change.Fields, err
}

func (c *claim) spec(object map[string]any) fieldset.Spec {
	s := fieldset.Spec{}
	s.APIVersion, _ = object["apiVersion"].(string)
	s.Kind, _ = object["kind"].(string)
	if c.template {
		s.Kind = strings.TrimSuffix(s.Kind, "Template")
	}
	s.Value = at(object, c.root()...)
	return s
}

// contains reports whether one of the fields is f, or is above it.
func contains(fields []fieldset.Field, f fieldset.Field) bool {
	return slices.ContainsFunc(fields, func(d fieldset.Field) bool { return within(f.Path, d.Path) })
}

// related reports whether one of two paths is the other, or is above it.
func related(a, b fieldpath.Path) bool { return within(a, b) || within(b, a) }

// within reports whether a path is another one or below it.
func within(path, above fieldpath.Path) bool {
	return len(path) >= len(above) && path[:len(above)].Equals(above)
}

func kindProblem(p runtimehooksv1.Patch) string {
	switch {
	case p.PatchType != runtimehooksv1.JSONPatchType && p.PatchType != runtimehooksv1.JSONMergePatchType:
		return fmt.Sprintf("patchType is %s", quote(string(p.PatchType)))
	case len(p.Patch) == 0:
		return "there is a patchType, and no patch"
	default:
		return ""
	}
}

// apply applies the patch with the library that Cluster API applies it with.
func (c *claim) apply() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it can't be applied: %v", p)
		}
	}()
	var patched []byte
	if c.patch.PatchType == runtimehooksv1.JSONMergePatchType {
		patched, err = jsonpatch.MergePatch(c.raw, c.patch.Patch)
	} else {
		patched, err = fieldset.ApplyPatch(c.raw, c.patch.Patch)
	}
	if err != nil {
		return err
	}
	v, err := fieldset.Decode(patched)
	if err != nil {
		return err
	}
	object, ok := v.(map[string]any)
	if !ok {
		return errors.New("what it leaves is no object")
	}
	c.after = object
	return nil
}

// at returns what is at a path of an object; nil if nothing is.
func at(object map[string]any, names ...string) any {
	var v any = object
	for _, name := range names {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

// without returns an object without what is at a path.
func without(object map[string]any, names ...string) map[string]any {
	out := make(map[string]any, len(object))
	for name, v := range object {
		out[name] = v
	}
	below, ok := object[names[0]].(map[string]any)
	if len(names) > 1 && ok {
		out[names[0]] = without(below, names[1:]...)
	} else {
		delete(out, names[0])
	}
	return out
}
