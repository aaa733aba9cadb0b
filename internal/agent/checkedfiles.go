package agent

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/sudoers"
	"github.com/capi-refit/refit/internal/agent/user"
	"github.com/capi-refit/refit/internal/node"
)

// blockFiles keeps files from being changed of which more is known than that they are files: what restarts for them would not read them, or
// what reads them would not accept them.
func (a *Agent) blockFiles(ctx context.Context, p *planner) {
	for _, file := range mountedChanges(p.work.Plan) {
		a.blockRefresh(ctx, p, file)
	}
	a.blockSudoers(ctx, p)
	a.blockWritten(p)
	a.blockMounts(p)
}

// blockWritten keeps files from being written for what would be in them: lines of tmpfiles.d that can't be undone, which the agent runs as
// root, and what the program skips or does not accept that it is for, so that all would be as desired and nothing in effect. All that is wrong with
// a file is told at once.
func (a *Agent) blockWritten(p *planner) {
	for _, c := range p.work.Plan.Changes {
		if c.Kind != node.FileKind || c.Operation != node.Write {
			continue
		}
		text := p.work.Contents[c.Name]
		for _, err := range []error{a.effects().CheckLines(c.Name, text), p.skipped(c.Name), p.refused(c.Name, text)} {
			if err != nil {
				p.block(c.Name, err)
			}
		}
	}
}

// refused returns an error if what reads a file would not accept it.
func (p *planner) refused(name string, text []byte) error {
	if path.Base(name) != hostsFile || !strings.HasPrefix(name, certsDir+"/") || p.req.Rules.Unsafe(name) {
		return nil
	}
	return checkHosts(name, text)
}

// blockSudoers has sudo's own parser read all rules as they would be, if the plan changes one of their files. Whatever the actions are, this
// is done: by a rule that can't be parsed nobody becomes root any more.
func (a *Agent) blockSudoers(ctx context.Context, p *planner) {
	next, changed := map[string]sudoers.File{}, ""
	for _, c := range p.work.Plan.Changes {
		if c.Kind != node.FileKind || !sudoers.Is(c.Name) {
			continue
		}
		f, err := p.plannedFile(c)
		if err == nil && p.work.Owners[c.Name] != "" {
			err = errors.New("sudo reads no rules of a file that is not root's: leave out its owner")
		}
		if err != nil {
			p.block(c.Name, err)
			return
		}
		next[c.Name], changed = f, c.Name
	}
	if changed == "" {
		return
	}
	if err := a.checkSudoers(ctx, next, p.req.Login); err != nil {
		p.block(changed, err)
	}
}

// checkSudoers returns an error unless sudo accepts what will be there, and refit becomes root by it.
func (a *Agent) checkSudoers(ctx context.Context, next map[string]sudoers.File, login node.Login) error {
	if err := sudoers.Check(ctx, a.root, next); err != nil {
		return err
	}
	now, err := sudoers.Whole(a.root, nil)
	if err != nil {
		return err
	}
	then, err := sudoers.Whole(a.root, next)
	if err != nil {
		return err
	}
	if user.LosesRoot(now, then, login) {
		return fmt.Errorf("refit logs in to the node as %s, and with the change sudo would not let it become root without a password: "+
			"leave its rule as the last one for %s, or have refit log in another way first (NodeAccess)", login.User, login.User)
	}
	return nil
}

// plannedFile returns what will be at a path that changes.
func (p *planner) plannedFile(c node.Change) (sudoers.File, error) {
	switch c.Operation {
	case node.Write:
		return sudoers.File{Content: p.work.Contents[c.Name], State: p.work.Expect[c.Name]}, nil
	case node.Restore:
		state, _, err := p.kept.get(c.Name)
		if err != nil || !state.Exists {
			return sudoers.File{}, err
		}
		content, err := p.kept.state.disk.ReadFile(p.kept.data(c.Name))
		return sudoers.File{Content: content, State: state}, err
	default:
		return sudoers.File{}, nil
	}
}

// plannedFiles returns what will be in the files that the plan changes, or nil for those that will be gone. One of which what was there
// before is put back is empty if that can't be read, which the change itself will tell.
func (p *planner) plannedFiles() map[string][]byte {
	all := map[string][]byte{}
	for _, c := range slices.Concat(p.work.Plan.Changes, p.removals) {
		if c.Kind != node.FileKind {
			continue
		}
		f, err := p.plannedFile(c)
		all[c.Name] = f.Content
		if f.State.Exists && f.Content == nil || err != nil {
			all[c.Name] = []byte{}
		}
	}
	return all
}
