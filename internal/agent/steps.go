package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// The names of the steps that every run has.
const (
	stepPrepare = "keep copies"
	stepVerify  = "verify"
	stepRecord  = "record"
)

// steps returns what a run does, in order. They follow from the work alone, so each process that works on the run has the
// same.
func (a *Agent) steps(w *work) []step {
	steps := a.stepsFirst(w)
	if w.guarded() {
		steps = append(steps, step{stepArm, func(ctx context.Context) (string, error) { return "", a.arm(ctx) }})
	}
	steps = append(steps, step{stepPrepare, func(ctx context.Context) (string, error) { return a.prepare(ctx, w) }})
	for _, c := range w.Plan.Changes {
		steps = append(steps, step{changeName(c), func(ctx context.Context) (string, error) { return a.change(ctx, w, c) }})
	}
	for _, action := range onNode(w.Plan.Actions) {
		steps = append(steps, step{actionName(action), func(ctx context.Context) (string, error) {
			return a.forgiving(ctx, w, action)
		}})
	}
	if w.brings() {
		steps = append(steps, step{stepEffect, func(ctx context.Context) (string, error) { return a.bringIntoEffect(ctx, w) }})
	}
	steps = append(steps, step{stepVerify, func(ctx context.Context) (string, error) { return a.verify(ctx, w) }})
	if w.guarded() {
		steps = append(steps, step{name: stepConfirm}) // which the runner does
	}
	if w.soaksLast() {
		steps = append(steps, step{stepSoak, func(ctx context.Context) (string, error) { return a.watch(ctx, w) }})
	}
	return append(steps, step{stepRecord, func(context.Context) (string, error) { return "", a.record(w) }})
}

func changeName(c node.Change) string {
	return strings.ToLower(string(c.Operation)) + " " + c.String()
}

func actionName(a disruption.Action) string {
	switch a.Type {
	case disruption.DaemonReload:
		return "daemon-reload"
	case disruption.TrustStoreUpdate:
		return "update the trust store"
	case disruption.NetworkReload:
		return "reload the network"
	case disruption.RebuildInitramfs:
		return "rebuild the initramfs"
	case disruption.RebuildBootloader:
		return "rebuild the boot loader's configuration"
	case disruption.Reboot:
		return stepReboot
	case disruption.Reload, disruption.Restart:
		return strings.ToLower(string(a.Type)) + " " + a.Unit
	default:
		return a.String()
	}
}

// onNode returns the actions that the node does itself. The server has drained it before it lets the plan be applied.
func onNode(actions []disruption.Action) []disruption.Action {
	return slices.DeleteFunc(slices.Clone(actions), func(a disruption.Action) bool {
		return a.Type == disruption.None || a.Type == disruption.Drain
	})
}

func actionNames(actions []disruption.Action) []string {
	var names []string
	for _, a := range onNode(actions) {
		names = append(names, actionName(a))
	}
	return names
}

// prepare keeps copies of all that is about to be overwritten, looks for what the run needs before it changes anything, and notes
// what of the node works until then.
func (a *Agent) prepare(ctx context.Context, w *work) (string, error) {
	notes, err := a.noteBefore(ctx, w)
	if err != nil {
		return "", err
	}
	for _, p := range w.Keep {
		_, ok, err := a.state.originals().get(p)
		if err == nil && !ok {
			err = a.state.originals().keep(a.root, p)
		}
		if err != nil {
			return "", err
		}
	}
	backups := a.state.backups(w.Digest, w.Token)
	if err := backups.keepRecord(); err != nil {
		return "", err
	}
	for _, c := range w.Plan.Changes {
		if c.Kind != node.FileKind {
			continue
		}
		if err := errors.Join(a.checkACL(w, c), backups.keep(a.root, c.Name)); err != nil { // it may have got a list after the plan
			return "", err
		}
		if c.Conflict {
			notes = append(notes, fmt.Sprintf("%s was changed on the node too; what was there is kept in %s",
				c.Name, backups.nodePath(c.Name)))
		}
	}
	return strings.Join(notes, "; "), a.noteEffects(ctx, w)
}

// noteBefore looks for what the actions take, and notes what is to be compared with the node after them.
func (a *Agent) noteBefore(ctx context.Context, w *work) (notes []string, err error) {
	if err := errors.Join(a.able(w), a.notePods(ctx, w.Plan), a.noteActive(ctx, w)); err != nil {
		return nil, err
	}
	return a.noteWorks(ctx, w)
}

// able returns an error if the node lacks what the actions of a run take.
func (a *Agent) able(w *work) error {
	actions := w.Plan.Actions
	if disruption.Has(actions, disruption.TrustStoreUpdate) {
		if err := a.ableByFiles(w, disruption.TrustStoreUpdate); err != nil {
			return err
		}
	}
	if names := actionNames(actions); len(names) > 0 && a.cfg.Units == nil {
		return fmt.Errorf("the node has no systemctl in /usr/bin or /bin, which it takes to %s", strings.Join(names, ", "))
	}
	if !reboots(actions) {
		return nil
	}
	_, err := bootOf(a.root)
	return err
}

// change makes one change.
func (a *Agent) change(ctx context.Context, w *work, c node.Change) (string, error) {
	if c.Kind == node.FileKind {
		return "", a.changeFile(w, c)
	}
	k, ok := a.kinds[c.Kind]
	if !ok {
		return "", fmt.Errorf("unknown kind %q", c.Kind)
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ChangeTimeout)
	defer cancel()
	return k.Make(ctx, w.Others[c.String()])
}

func (a *Agent) changeFile(w *work, c node.Change) error {
	switch c.Operation {
	case node.Write:
		want, err := a.expectedAt(w, c.Name)
		if err != nil {
			return err
		}
		return a.host().WriteFile(c.Name, w.Contents[c.Name], want)
	case node.Remove:
		return a.host().RemoveFile(c.Name)
	case node.Restore:
		return a.state.originals().putBack(a.host(), c.Name)
	}
	return fmt.Errorf("unknown operation %q", c.Operation)
}

// verify looks whether the node shows what the run was to bring about. After a reboot it does so when the boot has ended, and
// at the units that a reload or a restart was meant for; what has stopped with them is started again. Last it looks whether the node works as it did before.
func (a *Agent) verify(ctx context.Context, w *work) (note string, err error) {
	if reboots(w.Plan.Actions) {
		if note, err = a.awaitUp(ctx); err != nil {
			return "", err
		}
	}
	if err := errors.Join(a.verifyFiles(w), a.verifyOthers(ctx, w)); err != nil {
		return "", err
	}
	if err := a.startAgain(ctx, w, false); err != nil {
		return "", err
	}
	actions, check := a.unitsToVerify(w)
	if err := a.verifyUnits(ctx, actions, check); err != nil {
		return "", err
	}
	more, err := a.verifyEffects(ctx, w)
	if err != nil {
		return "", err
	}
	if err := a.awaitWorks(ctx, w); err != nil || w.soaksLast() {
		return joined(note, more), err
	}
	return joined(note, more), a.probedSettle(ctx, w) // what soaks is watched for longer
}

// joined returns notes as one.
func joined(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(n string) bool { return n == "" }), "; ")
}

func (a *Agent) verifyFiles(w *work) error {
	var wrong []error
	for _, p := range slices.Sorted(maps.Keys(w.Expect)) {
		observed, err := a.root.Observe(p)
		want, unknown := a.expectedAt(w, p)
		switch {
		case unknown != nil:
			wrong = append(wrong, unknown)
		case err != nil:
			wrong = append(wrong, err)
		case observed != want && !want.Exists:
			wrong = append(wrong, fmt.Errorf("%s is there again", p))
		case observed != want:
			wrong = append(wrong, fmt.Errorf("%s is not as it was written: %s", p, strings.Join(want.Differs(observed), ", ")))
		}
	}
	return errors.Join(wrong...)
}

// record makes what the run has applied what was applied last.
func (a *Agent) record(w *work) error {
	if err := a.state.save("record.json", w.Next); err != nil {
		return err
	}
	// From here on the run has succeeded. Originals that nobody needs any more and that can't be removed now go with the next run.
	_ = a.state.sweepOriginals(&w.Next)
	return nil
}
