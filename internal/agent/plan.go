package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// Plan returns what Apply would do, and changes nothing.
func (a *Agent) Plan(ctx context.Context, req node.Request) (node.Plan, error) {
	want, err := a.validate(req)
	if err != nil {
		return node.Plan{}, err
	}
	if err := a.checkMachine(req.Machine); err != nil {
		return node.Plan{}, err
	}
	p, err := a.plan(ctx, req, want)
	if err != nil {
		return node.Plan{}, err
	}
	if p.underWay != nil {
		p.note("a run is under way for digest " + p.underWay.Digest)
	}
	return p.work.Plan, nil
}

// planner compares, path by path, what is desired with what was applied last and with what is observed.
type planner struct {
	req    node.Request
	root   host.Root
	kept   copies
	owners host.Owners
	kinds  map[node.Kind]kind.Kind
	desired
	current *record // nil: there is no record on the node
	applied *record // the record, or what stands in for it; nil: nothing is known
	work    work
	// owed is what the node has to do from before, or nil.
	owed *debt
	// underWay is the run that has not ended, or nil.
	underWay *node.Status
	// removals are made after all writes.
	removals []node.Change
}

func (a *Agent) plan(ctx context.Context, req node.Request, want desired) (*planner, error) {
	rec, err := a.state.loadRecord()
	if err != nil {
		return nil, err
	}
	o, err := host.LoadOwners(a.root)
	if err != nil {
		return nil, err
	}
	owed, err := a.debt()
	if err != nil {
		return nil, err
	}
	last, err := a.state.loadStatus()
	if err != nil {
		return nil, err
	}
	p := &planner{
		owed: owed,
		req:  req, root: a.root, kept: a.state.originals(), owners: o, kinds: a.kinds, desired: want, current: rec, applied: rec,
		work: work{
			Machine: req.Machine.Now(), Digest: req.Digest, Token: req.Token, Plan: node.Plan{Digest: req.Digest}, Rules: req.Rules, Login: req.Login,
			Contents: map[string][]byte{}, Expect: map[string]host.State{}, Owners: map[string]string{},
			Next:   record{Machine: req.Machine.Now(), Digest: req.Digest, Files: map[string]entry{}, Others: map[string]node.Resource{}},
			Others: map[string]kind.Change{},
		},
	}
	if last != nil {
		p.work.Left = last.Left
		if last.Status.State == node.Running {
			p.underWay = &last.Status
		}
	}
	switch {
	case rec == nil && req.Baseline != nil:
		p.applied = baselineRecord(req.Baseline)
	case rec == nil:
		p.note("the baseline is missing: what the node was made with is not known, so what differs counts as changed")
	}
	if err := p.run(ctx); err != nil {
		return nil, err
	}
	a.blockUnits(ctx, p)
	a.blockByFiles(p)
	a.blockFiles(ctx, p)
	return p, nil
}

func (p *planner) run(ctx context.Context) error {
	paths := map[string]bool{}
	for path := range p.files {
		paths[path] = true
	}
	for path := range p.work.Left {
		paths[path] = true
	}
	if p.applied != nil {
		for path := range p.applied.Files {
			paths[path] = true
		}
	}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if err := p.decide(path); err != nil {
			return err
		}
	}
	if err := p.decideOthers(ctx); err != nil {
		return err
	}
	p.accountsFirst()
	plan := &p.work.Plan
	lists := make([][]disruption.Action, 0, len(plan.Changes))
	for _, c := range plan.Changes {
		lists = append(lists, c.Actions)
	}
	plan.Actions = disruption.Merge(p.owe(lists)...)
	p.refuseTwins()
	return nil
}

func (p *planner) decide(path string) error {
	f, listed := p.files[path]
	was, applied := entry{}, false
	if p.applied != nil {
		was, applied = p.applied.Files[path]
	}
	switch {
	case !listed:
		return p.unlisted(path, was, applied)
	case f.Unmanaged:
		if applied { // should it be dropped one day, this is what it was
			p.work.Next.Files[path] = was
		}
		return nil
	case p.rotated(f, was):
		p.withhold(path, was, applied)
		return nil
	}
	want, unknownOwner := wantedState(f, p.owners)
	is := entry{SHA256: want.SHA256, Owner: f.Owner, Mode: f.Mode, Origin: originNone}
	if applied {
		is.Origin = was.Origin
	}
	p.work.Next.Files[path] = is
	if applied && is.same(was, p.owners) && !p.toRepair(path, want, unknownOwner) {
		p.unchanged(path, want, unknownOwner)
		return nil
	}
	if !p.owned(path, f, &want, unknownOwner) {
		p.block(path, unknownOwner)
		return nil
	}
	return p.changed(path, want, was, applied)
}

// unchanged looks at a file that the specs did not change. It is never touched: an edit of it on the node, by a command of
// the bootstrap data for example, may be what keeps the node working.
func (p *planner) unchanged(path string, want host.State, unknownOwner error) {
	observed, err := p.root.Observe(path)
	if what := differences(want, observed, unknownOwner, err); len(what) > 0 {
		p.work.Plan.Drift = append(p.work.Plan.Drift, node.Drift{Ref: node.FileRef(path), What: what})
	}
}

// changed plans a file that the specs have added or changed.
func (p *planner) changed(path string, want host.State, was entry, applied bool) error {
	observed, err := p.root.Observe(path)
	if err != nil {
		p.block(path, err)
		return nil
	}
	if !applied {
		if err := p.keepOriginal(path, observed, want); err != nil {
			return err
		}
	}
	p.work.Expect[path] = want
	if observed == want {
		return nil
	}
	if err := staticpod.Check(path, p.files[path].Content); err != nil {
		p.block(path, err)
		return nil
	}
	if p.propose(node.Write, path, observed, was, applied) {
		p.work.Contents[path] = p.files[path].Content
	}
	return nil
}

// keepOriginal notes what was at a path before it is applied for the first time. Without record and baseline, a file that
// is as desired was most likely laid down by bootstrap.
func (p *planner) keepOriginal(path string, observed, want host.State) error {
	_, ok, err := p.kept.get(path)
	if err != nil {
		return err
	}
	if left, is := p.work.Left[path]; is && left == observed && !ok {
		return nil // there was nothing before the failed run that has left it
	}
	if ok || observed.Exists && (p.applied != nil || observed != want) {
		e := p.work.Next.Files[path]
		e.Origin = originKept
		p.work.Next.Files[path] = e
		if !ok { // one that a failed run has left is the older, and the true one
			p.work.Keep = append(p.work.Keep, path)
		}
	}
	return nil
}

// dropped plans a file that the specs no longer list.
func (p *planner) dropped(path string, was entry, applied bool) error {
	if _, err := p.req.Rules.Actions(path); err != nil && p.current == nil && applied {
		return nil // bootstrap lays down much that is not the specs' own: certificates, kubeadm's configuration
	}
	want, operation := host.State{}, node.Remove
	if was.Origin == originKept {
		original, ok, err := p.kept.get(path)
		if err != nil {
			return err
		}
		if !ok {
			p.block(path, fmt.Errorf("the copy of what was at %s before is missing, so it can't be put back", path))
			return nil
		}
		want, operation = original, node.Restore
	}
	observed, err := p.root.Observe(path)
	if err != nil {
		p.block(path, err)
		return nil
	}
	if !observed.Exists || observed == want {
		return nil
	}
	if p.propose(operation, path, observed, was, applied) {
		p.work.Expect[path] = want
	}
	return nil
}

// propose adds a change to the plan, or what keeps it from being made.
func (p *planner) propose(op node.Operation, path string, observed host.State, was entry, applied bool) bool {
	if op == node.Write {
		if err := p.root.CheckACL(path, p.work.Expect[path].UID); err != nil {
			p.block(path, err)
			return false
		}
	}
	before, after, err := p.contents(op, path)
	if err != nil {
		p.block(path, err)
		return false
	}
	actions, err := p.req.Rules.ActionsFor(path, before, after)
	if err != nil {
		p.block(path, err)
		return false
	}
	c := node.Change{Ref: node.FileRef(path), Operation: op, Actions: actions}
	c.Conflict = p.conflicts(path, observed, was, applied)
	if p.refuses(c.Conflict) {
		p.block(path, fmt.Errorf("%s was changed on the node as well as in the specs, and conflicts are refused", path))
		return false
	}
	if op == node.Write {
		p.work.Plan.Changes = append(p.work.Plan.Changes, c)
	} else {
		p.removals = append(p.removals, c)
	}
	return true
}

// contents returns what is in a file before and after a change, where what that takes depends on it. Nil: it is not known.
func (p *planner) contents(op node.Operation, path string) (before, after []byte, err error) {
	if !disruption.ByContents(path) {
		return nil, nil, nil
	}
	if before, _, err = p.root.ReadFile(path); err != nil {
		return nil, nil, err
	}
	switch op {
	case node.Write:
		after = p.files[path].Content
	case node.Remove:
	case node.Restore:
		if after, err = p.kept.read(path); err != nil {
			return nil, nil, err
		}
	}
	return append([]byte{}, before...), append([]byte{}, after...), nil
}

// refuseTwins blocks changes of one file under two names, which would undo each other.
func (p *planner) refuseTwins() {
	names := map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(p.work.Next.Files)) {
		p.claimTarget(names, path, false)
	}
	for _, c := range p.removals {
		p.claimTarget(names, c.Name, true)
	}
}

func (p *planner) claimTarget(names map[string]string, path string, changed bool) {
	target, err := p.root.Resolve(path)
	if err != nil {
		return
	}
	other, taken := names[target]
	if !taken {
		names[target] = path
		return
	}
	for _, c := range p.work.Plan.Changes {
		changed = changed || c.Ref == node.FileRef(path) || c.Ref == node.FileRef(other)
	}
	if changed {
		p.block(path, fmt.Errorf("%s and %s are the same file on the node", other, path))
	}
}

func (p *planner) block(path string, err error) {
	p.work.Plan.Blocked = append(p.work.Plan.Blocked, node.ProblemOf(path, err))
}

func (p *planner) note(text string) {
	p.work.Plan.Notes = append(p.work.Plan.Notes, text)
}

// settled reports whether there is nothing to do at all, not even to record.
func (p *planner) settled() bool {
	next := p.work.Next
	return len(p.work.Plan.Changes) == 0 && p.current != nil && p.current.Digest == next.Digest &&
		maps.Equal(p.current.Files, next.Files) && sameOthers(p.current.Others, next.Others)
}
