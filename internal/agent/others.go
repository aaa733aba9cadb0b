package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/controlplane"
	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/kubelet"
	"github.com/capi-refit/refit/internal/agent/release"
	"github.com/capi-refit/refit/internal/agent/timesync"
	"github.com/capi-refit/refit/internal/agent/unit"
	"github.com/capi-refit/refit/internal/agent/user"
	"github.com/capi-refit/refit/internal/agent/version"
	"github.com/capi-refit/refit/internal/node"
)

// kinds returns what brings the resources that are no files to the node.
func kinds(h host.Host, releases *release.Store) map[node.Kind]kind.Kind {
	return map[node.Kind]kind.Kind{
		node.UnitKind: unit.New(h),
		node.NTPKind:  timesync.New(h),
		node.UserKind: user.New(h),
		// A kubelet may be stopped to be changed, but never for long: kubeadm needs it, and so does the control plane.
		node.KubeletKind:       kubelet.New(h),
		node.KubeletConfigKind: kubelet.NewConfig(h),
		node.ControlPlaneKind:  controlplane.New(h),
		node.VersionKind:       version.New(h, releases),
	}
}

// The order in which changes are made, beside files: units are there before files are removed, and accounts and what runs the
// node come last: a new version of it with the arguments that are meant for it. Accounts that are new come before files, see accountsFirst.
var (
	beforeRemovals = []node.Kind{node.UnitKind, node.NTPKind}
	afterRemovals  = []node.Kind{node.UserKind, node.KubeletKind, node.KubeletConfigKind, node.VersionKind, node.ControlPlaneKind}
)

// decideOthers plans what is no file, and puts the removals of files where they belong.
func (p *planner) decideOthers(ctx context.Context) error {
	refs := map[string]node.Ref{}
	for ref := range p.others {
		refs[ref.String()] = ref
	}
	if p.applied != nil {
		for name, r := range p.applied.Others {
			if ref, ok := r.Ref(); ok && p.kinds[ref.Kind] != nil {
				refs[name] = ref
			}
		}
	}
	decide := func(kinds []node.Kind) error {
		for _, k := range kinds {
			for _, name := range slices.Sorted(maps.Keys(refs)) {
				if ref := refs[name]; ref.Kind == k {
					if err := p.decideOther(ctx, ref); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}
	if err := decide(beforeRemovals); err != nil {
		return err
	}
	p.work.Plan.Changes = append(p.work.Plan.Changes, p.removals...)
	return decide(afterRemovals)
}

// decideOther plans one resource that is no file.
func (p *planner) decideOther(ctx context.Context, ref node.Ref) error {
	q := p.question(ref)
	answer, err := p.kinds[ref.Kind].Plan(ctx, q)
	if err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	if q.Desired != nil {
		p.work.Next.Others[ref.String()] = *cmp.Or(answer.Applied, q.Desired)
	}
	if len(answer.Drift) > 0 {
		p.work.Plan.Drift = append(p.work.Plan.Drift, node.Drift{Ref: ref, What: answer.Drift})
	}
	p.work.Plan.Notes = append(p.work.Plan.Notes, answer.Notes...)
	p.work.Plan.Stage = append(p.work.Plan.Stage, answer.Stage...)
	switch {
	case answer.Blocked != "":
		p.block(ref.String(), errors.New(answer.Blocked))
	case answer.Operation == "":
	case p.refuses(answer.Conflict):
		p.block(ref.String(), fmt.Errorf("%s was changed on the node as well as in the specs, and conflicts are refused", ref))
	default:
		p.work.Plan.Changes = append(p.work.Plan.Changes, node.Change{
			Ref: ref, Operation: answer.Operation, Conflict: answer.Conflict, Switches: answer.Switches, Actions: answer.Actions,
		})
		p.work.Others[ref.String()] = kind.Change{Was: q.Was, Desired: q.Desired, Before: answer.Before}
	}
	return nil
}

func (p *planner) question(ref node.Ref) kind.Question {
	q := kind.Question{
		Known: p.applied != nil, Rules: p.req.Rules, Login: p.req.Login, Repair: p.repairs(), Source: p.req.Source, Kubernetes: p.kubernetes(),
		UnderWay: p.underWay != nil, Files: p.plannedFiles(),
	}
	if r, ok := p.others[ref]; ok {
		q.Desired = &r
	}
	if p.applied != nil {
		if r, ok := p.applied.Others[ref.String()]; ok {
			q.Was = &r
		}
	}
	if q.Desired != nil && q.Desired.Unit != nil {
		q.New = p.brings(q.Desired.Unit.File)
	}
	if p.req.Repair {
		q.Desired = p.passwordAsApplied(q.Desired, q.Was)
	}
	return q
}

// brings reports whether there was nothing at the path of a file before the plan, or before a failed run that has left the file.
func (p *planner) brings(path string) bool {
	if p.applied != nil {
		if _, ok := p.applied.Files[path]; ok {
			return false
		}
	}
	_, written := p.work.Contents[path]
	return p.work.Next.Files[path].Origin == originNone && (written || p.isLeft(path))
}

// passwordAsApplied returns what a repair may bring of a user: the password that was applied. The one that is desired may come from a
// Secret that has changed since, which only an update brings.
func (p *planner) passwordAsApplied(desired, was *node.Resource) *node.Resource {
	if desired == nil || desired.User == nil || desired.User.PasswordHash == "" {
		return desired
	}
	applied := ""
	if was != nil && was.User != nil {
		applied = was.User.PasswordHash
	}
	if applied == desired.User.PasswordHash {
		return desired
	}
	p.note("the password of user " + desired.User.Name + " is not the one that was applied; an update of the Machine brings it, and a repair does not")
	u := *desired.User
	u.PasswordHash = applied
	return &node.Resource{User: &u}
}

// kubernetes returns the version that the node is to run in the end, or "".
func (p *planner) kubernetes() string {
	if r := p.others[node.Ref{Kind: node.VersionKind}]; r.Version != nil {
		return r.Version.Kubernetes
	}
	return ""
}

// verifyOthers looks whether the node shows what is no file as it was made. Aspects that are passed over may differ.
func (a *Agent) verifyOthers(ctx context.Context, w *work, passOver ...string) error {
	var wrong []error
	for _, c := range w.Plan.Changes {
		if c.Kind == node.FileKind {
			continue
		}
		change := w.Others[c.String()]
		was := change.Desired
		if was == nil {
			was = change.Was // it has to be gone
		}
		answer, err := a.kinds[c.Kind].Plan(ctx, kind.Question{Was: was, Known: true, Desired: change.Desired, Rules: w.Rules, Login: w.Login})
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Errorf("%s: %w", c.Ref, err))
		case answer.Operation != "":
			wrong = append(wrong, fmt.Errorf("%s is there again", c.Ref))
		case answer.Blocked != "":
			wrong = append(wrong, fmt.Errorf("%s can't be looked at: %s", c.Ref, answer.Blocked))
		default:
			what := w.driftedSince(c.Ref, answer.Drift)
			what = slices.DeleteFunc(what, func(aspect string) bool { return slices.Contains(passOver, aspect) })
			if len(what) > 0 {
				wrong = append(wrong, fmt.Errorf("%s is not as it was made: %s", c.Ref, strings.Join(what, ", ")))
			}
		}
	}
	return errors.Join(wrong...)
}

// driftedSince returns what differs and did not when the run was planned. Parts of a resource that the specs did not change, and
// that somebody on the node has, are left as they are.
func (w *work) driftedSince(ref node.Ref, what []string) []string {
	return slices.DeleteFunc(slices.Clone(what), func(aspect string) bool {
		return slices.ContainsFunc(w.Plan.Drift, func(d node.Drift) bool { return d.Ref == ref && slices.Contains(d.What, aspect) })
	})
}

// undo has the node show again what it showed before a change of what is no file. The note is for people.
func (a *Agent) undo(ctx context.Context, w *work, c node.Change) (note string, err error) {
	k, ok := a.kinds[c.Kind]
	if !ok {
		return "", fmt.Errorf("unknown kind %q", c.Kind)
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ChangeTimeout)
	defer cancel()
	err = k.Undo(ctx, w.Others[c.String()])
	var remark *kind.Remark
	if errors.As(err, &remark) {
		return remark.Error(), nil
	}
	return "", err
}

// sameOthers compares two records. That a map is missing means that it is empty.
func sameOthers(a, b map[string]node.Resource) bool {
	return maps.EqualFunc(a, b, func(a, b node.Resource) bool { return reflect.DeepEqual(a, b) })
}
