package agent

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/effect"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

const (
	// effectsFile is where it is noted, of a run and of the node, what was in effect before.
	effectsFile = "effects.json"
	// stepEffect brings into effect what no unit does, and stepEffectBack gives the running system what it had.
	stepEffect     = "bring into effect"
	stepEffectBack = "take out of effect"
)

// takesEffect reports whether a change is one whose effect is looked at.
func takesEffect(c node.Change) bool {
	return c.Kind == node.FileKind && effect.Concerns(c.Name, c.Actions)
}

// brings reports whether a run has something to bring into effect. What a boot reads it brings into effect itself.
func (w *work) brings() bool {
	return !reboots(w.Plan.Actions) && slices.ContainsFunc(w.Plan.Changes, takesEffect)
}

func (a *Agent) effects() effect.Effects { return effect.Effects{Host: a.host()} }

// versions returns what is in a file before and after a run, once copies are kept. Nil: it is not there.
func (a *Agent) versions(w *work, c node.Change) (before, after []byte, err error) {
	if before, err = a.state.backups(w.Digest, w.Token).read(c.Name); err != nil {
		return nil, nil, err
	}
	switch c.Operation {
	case node.Write:
		after = append([]byte{}, w.Contents[c.Name]...)
	case node.Restore:
		after, err = a.state.originals().read(c.Name)
	case node.Remove:
	}
	if errors.Is(err, fs.ErrNotExist) { // it is put back already, and the record with it
		err = nil
	}
	return before, after, err
}

// noteEffects writes down what is in effect before the first of the run's files is changed.
func (a *Agent) noteEffects(ctx context.Context, w *work) error {
	if !slices.ContainsFunc(w.Plan.Changes, takesEffect) {
		return nil
	}
	var changes []effect.Change
	for _, c := range w.Plan.Changes {
		if !takesEffect(c) {
			continue
		}
		before, after, err := a.versions(w, c)
		if err != nil {
			return err
		}
		changes = append(changes, effect.Change{Path: c.Name, Before: before, After: after, Actions: c.Actions})
	}
	var base effect.Base
	if _, err := a.state.load(effectsFile, &base); err != nil {
		return err
	}
	noted, base, err := a.effects().Note(ctx, changes, base)
	if err != nil {
		return err
	}
	if err := a.state.save(effectsFile, base); err != nil {
		return err
	}
	return a.state.save(a.notedIn(w), noted)
}

func (a *Agent) notedIn(w *work) string {
	return filepath.Join(a.state.backups(w.Digest, w.Token).name, effectsFile)
}

// noted returns what was in effect before a run.
func (a *Agent) noted(w *work) (n effect.Noted, base effect.Base, err error) {
	_, err = a.state.load(a.notedIn(w), &n)
	_, unread := a.state.load(effectsFile, &base)
	return n, base, errors.Join(err, unread)
}

func (a *Agent) bringIntoEffect(ctx context.Context, w *work) (string, error) {
	noted, base, err := a.noted(w)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ActionTimeout)
	defer cancel()
	notes, err := a.effects().Bring(ctx, noted, base)
	return strings.Join(notes, "; "), err
}

// verifyEffects returns an error if the running system does not have what the changed files say. What takes a boot is in the notes of a run
// that has none.
func (a *Agent) verifyEffects(ctx context.Context, w *work) (string, error) {
	noted, _, err := a.noted(w)
	if err != nil {
		return "", err
	}
	booted := reboots(w.Plan.Actions)
	notes, err := a.effects().Verify(ctx, noted, booted)
	for _, t := range []disruption.ActionType{disruption.RebuildInitramfs, disruption.RebuildBootloader} {
		if !booted && disruption.Has(w.Plan.Actions, t) {
			notes = append(notes, "what "+string(t)+" has made is read when the node boots next")
		}
	}
	if booted && disruption.Has(w.Plan.Actions, disruption.RebuildBootloader) {
		err = errors.Join(err, effect.Boot{Root: a.root}.Booted(noted.Arguments))
	}
	return strings.Join(notes, "; "), err
}

// effectsBack is the step of a rollback that gives the running system what it had before, once files are put back and units have read them.
func (r *runner) effectsBack(changes []node.Change) []step {
	if !slices.ContainsFunc(changes, takesEffect) {
		return nil
	}
	return []step{{stepEffectBack, func(ctx context.Context) (string, error) {
		noted, _, err := r.noted(r.work)
		if err != nil {
			return "", err
		}
		ctx, cancel := context.WithTimeout(ctx, r.cfg.ActionTimeout)
		defer cancel()
		notes, err := r.effects().Undo(ctx, noted)
		return strings.Join(notes, "; "), err
	}}}
}
