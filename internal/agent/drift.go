package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/node"
)

// Drift compares what the node shows with the record of what was applied last. It changes nothing and needs no token.
func (a *Agent) Drift(ctx context.Context, req node.DriftRequest) (node.DriftReport, error) {
	if err := addressed(req.Protocol, req.Machine); err != nil {
		return node.DriftReport{}, err
	}
	if err := a.checkMachine(req.Machine); err != nil {
		return node.DriftReport{}, err
	}
	before, err := a.state.loadStatus()
	if err != nil {
		return node.DriftReport{}, err
	}
	report, err := a.compare(ctx)
	if err != nil {
		return node.DriftReport{}, err
	}
	// What a run changes meanwhile is no drift, whether or not it has ended by now.
	after, err := a.state.loadStatus()
	if err != nil {
		return node.DriftReport{}, err
	}
	if running(before) || running(after) || !sameRun(before, after) {
		report.UnderWay, report.Drift, report.Unknown = true, nil, nil
	}
	return report, nil
}

func running(last *lastRun) bool { return last != nil && last.Status.State == node.Running }

func sameRun(a, b *lastRun) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Offset == b.Offset && a.Status.FinishedAt.Equal(b.Status.FinishedAt)
}

// compare reads the record and looks at all that is in it.
func (a *Agent) compare(ctx context.Context) (node.DriftReport, error) {
	rec, err := a.state.loadRecord()
	if err != nil || rec == nil {
		return node.DriftReport{}, err
	}
	report := node.DriftReport{Recorded: true, Digest: rec.Digest}
	if info, err := a.disk.Lstat(a.state.path("record.json")); err == nil {
		report.RecordedAt = info.ModTime().UTC()
	}
	owners, err := host.LoadOwners(a.root)
	if err != nil {
		return node.DriftReport{}, err
	}
	for _, path := range slices.Sorted(maps.Keys(rec.Files)) {
		want, unknownOwner := specState(rec.Files[path], owners)
		observed, err := a.root.Observe(path)
		if unreadable(err) {
			report.Unknown = append(report.Unknown, node.Problem{Path: path, Reason: "it can't be read: " + err.Error()})
			continue
		}
		note(&report, node.FileRef(path), differences(want, observed, unknownOwner, err))
	}
	for _, name := range slices.Sorted(maps.Keys(rec.Others)) {
		a.compareOther(ctx, &report, name, rec.Others[name])
	}
	return report, nil
}

func note(report *node.DriftReport, ref node.Ref, what []string) {
	if len(what) > 0 {
		report.Drift = append(report.Drift, node.Drift{Ref: ref, What: what})
	}
}

// differences says in which respects a file is not what it should be. An owner that the node does not know is not the one that
// the file has; and what is no regular file, or can't be got at, is no longer the file that was written.
func differences(want, observed host.State, unknownOwner, unobserved error) []string {
	if errors.Is(unobserved, syscall.ENOTDIR) {
		return []string{"missing"}
	}
	if unobserved != nil {
		return []string{"content"}
	}
	what := want.Differs(observed)
	if unknownOwner != nil && observed.Exists && !slices.Contains(what, "owner") {
		what = append(what, "owner")
	}
	return what
}

// unreadable reports whether an error tells nothing of the file: the disk does not give it, for example.
func unreadable(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && errno != syscall.ENOTDIR
}

// compareOther looks at what is no file. It is asked about as if the specs wanted what they wanted then, so that all that differs
// is drift.
func (a *Agent) compareOther(ctx context.Context, report *node.DriftReport, name string, was node.Resource) {
	unknown := func(reason string) {
		report.Unknown = append(report.Unknown, node.Problem{Path: name, Reason: reason})
	}
	ref, ok := was.Ref()
	if !ok || a.kinds[ref.Kind] == nil {
		unknown(fmt.Sprintf("this agent does not know how to look at %s", cmp.Or(name, "it")))
		return
	}
	answer, err := a.kinds[ref.Kind].Plan(ctx, kind.Question{Was: &was, Desired: &was, Known: true})
	switch {
	case err != nil:
		unknown("it can't be looked at: " + err.Error())
	case len(answer.Drift) > 0:
		note(report, ref, answer.Drift)
	case answer.Blocked != "":
		unknown(answer.Blocked)
	case answer.Operation != "":
		note(report, ref, []string{"state"})
	}
}

// repairs reports whether drift is brought back. What was never applied has not drifted.
func (p *planner) repairs() bool { return p.req.Repair && p.current != nil }

// toRepair reports whether a file that the specs did not change has drifted and is to be brought back, or a failed run has left it.
func (p *planner) toRepair(path string, want host.State, unknownOwner error) bool {
	if !p.repairs() {
		return p.isLeft(path)
	}
	observed, err := p.root.Observe(path)
	return len(differences(want, observed, unknownOwner, err)) > 0
}

// rotated reports whether a repair would bring a content out of a Secret that is not the one that was applied, as far as the node's own
// record tells. The digest of the specs does not: it is the same when a Secret changes.
func (p *planner) rotated(f node.File, was entry) bool {
	sum := sha256.Sum256(f.Content)
	return p.req.Repair && f.FromSecret && (p.current == nil || was.SHA256 != hex.EncodeToString(sum[:]))
}

// withhold leaves a file as it is whose content a repair may not bring. What the node records of it stays.
func (p *planner) withhold(path string, was entry, applied bool) {
	p.note(path + " is not brought back: the Secret that its content comes from has changed since it was applied; an update of the Machine brings it, and a repair does not")
	if !applied {
		return
	}
	p.work.Next.Files[path] = was
	want, unknownOwner := specState(was, p.owners)
	p.unchanged(path, want, unknownOwner)
}

// refuses reports whether a change on the node that the specs did not ask for keeps the plan from being applied.
func (p *planner) refuses(conflict bool) bool {
	return conflict && p.req.OnConflict == node.Refuse && !p.repairs()
}
