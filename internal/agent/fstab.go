package agent

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/node"
)

const fstab = "/etc/fstab"

// blockMounts keeps /etc/fstab from being changed in a line by which the file system is mounted that the agent keeps its state on, or its
// program: what puts the node back after a boot would be lost with it.
func (a *Agent) blockMounts(p *planner) {
	changed := func(c node.Change) bool { return c.Ref == node.FileRef(fstab) }
	if !slices.ContainsFunc(p.work.Plan.Changes, changed) || p.req.Rules.Unsafe(fstab) {
		return
	}
	before, _, err := p.root.ReadFile(fstab)
	if err != nil {
		p.block(fstab, err)
		return
	}
	after := p.plannedFiles()[fstab]
	for _, kept := range []string{a.state.dir, filepath.Dir(a.cfg.Executable)} {
		kept = path.Join("/", strings.TrimPrefix(kept, a.cfg.Root))
		if !slices.Equal(mountsOf(before, kept), mountsOf(after, kept)) {
			p.block(fstab, fmt.Errorf("it changes how %s is mounted, without which nothing puts this node back: replace the machine, or name "+
				"%s in a NodeDisruptionPolicy with unsafe: true if that is meant", kept, fstab))
			return
		}
	}
}

// mountsOf returns the lines of a table that are about a directory, or one above it: what is mounted, where, of which type and with which
// options, fstab(5).
func mountsOf(table []byte, dir string) (mounts []string) {
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") || !path.IsAbs(fields[1]) {
			continue
		}
		if strings.HasPrefix(dir+"/", strings.TrimSuffix(path.Clean(fields[1]), "/")+"/") {
			fields[1] = path.Clean(fields[1])
			mounts = append(mounts, strings.Join(fields[:min(len(fields), 4)], " "))
		}
	}
	return mounts
}
