package host

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What matchpathcon calls the kinds of files.
const (
	regularFile   = "file"
	directoryFile = "dir"
)

const (
	// selinuxEnforce is there while SELinux is enabled, and reports whether it is enforced.
	selinuxEnforce = "/sys/fs/selinux/enforce"
	// labelTimeout bounds a question to the node's policy.
	labelTimeout = 10 * time.Second
	// programLike is a path that the policy labels as a program of the system, and programLabel what that is where nobody can be asked.
	programLike  = "/usr/bin/refit-node"
	programLabel = "system_u:object_r:bin_t:s0"
)

// labels are SELinux's of a node. A new file has a label that follows from its directory, which need not be that of its path: a
// resolv.conf that is replaced would be no net_conf_t any more. So it gets the one that the node's policy has for the path, as by
// restorecon(8), before it gets its name. Nil: SELinux is not enabled, or nobody can be asked for the policy's labels.
type labels struct {
	root Root
	// custom are types that people give to files, and that stay; see customizable_types(5).
	custom []string
}

// labels returns those of the node.
func (r Root) labels() *labels {
	if r.Find(selinuxEnforce) == "" || r.Program("matchpathcon") == "" {
		return nil
	}
	policy := "targeted"
	config, _, _ := r.ReadFile("/etc/selinux/config")
	for line := range bytes.Lines(config) {
		if name, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("SELINUXTYPE=")); ok {
			policy = filepath.Base(string(bytes.TrimSpace(name)))
		}
	}
	custom, _, _ := r.ReadFile(filepath.Join("/etc/selinux", policy, "contexts/customizable_types"))
	return &labels{root: r, custom: strings.Fields(string(custom))}
}

// of returns the label that the policy has for a path, which is one of the node's own, or "" if it has none.
func (l *labels) of(kind, p string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), labelTimeout)
	defer cancel()
	out, err := l.root.Run(ctx, Command{Name: "matchpathcon", Args: []string{"-n", "-m", kind, p}})
	if err != nil && ctx.Err() != nil {
		return "", fmt.Errorf("the SELinux policy's label of %s is not known: %w", p, err)
	}
	said := strings.TrimSpace(string(out))
	if err != nil || said == "<<none>>" || typeOf(said) == "" {
		return "", nil //nolint:nilerr // the policy has none for the path
	}
	return said, nil
}

// choose returns the label of a path, of which the file there has, or had, another. What differs beside the type stays, and so does a type that
// people have given to it, as with restorecon without -F.
func (l *labels) choose(kind, p, was string) (string, error) {
	for _, custom := range l.custom {
		if typeOf(was) == custom {
			return was, nil
		}
	}
	of, err := l.of(kind, p)
	if err != nil || of == "" || typeOf(of) == typeOf(was) {
		return was, err
	}
	return of, nil
}

// typeOf returns the third part of a label, or "".
func typeOf(label string) string {
	parts := strings.SplitN(strings.TrimRight(label, "\x00"), ":", 4)
	if len(parts) < 3 {
		return ""
	}
	return parts[2]
}

// give gives a new file the label of a path, if the node has labels. x is what the file had that it replaces.
func (l *labels) give(f *os.File, kind, p string, x Extended) error {
	if l == nil {
		return nil
	}
	label, err := l.choose(kind, p, string(x[selinuxLabel]))
	if err != nil || label == "" {
		return err
	}
	return setLabel(f, label)
}

// labelDir labels a directory that was just made in the last of those on the way. Where others can write it may be another by now, and stays
// as it is.
func (p *place) labelDir(fd int, name string) error {
	if p.labels == nil {
		return nil
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || !ours(stat.Uid) {
		return err
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	at := place{dirs: p.dirs, name: name}
	f := os.NewFile(uintptr(own), at.at())
	defer f.Close()
	return p.labels.give(f, directoryFile, at.at(), nil)
}

// setLabel labels an open file. What is mounted with one label for all has no others.
func setLabel(f *os.File, label string) error {
	value := append([]byte(strings.TrimRight(label, "\x00")), 0)
	if err := unix.Fsetxattr(int(f.Fd()), selinuxLabel, value, 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
		return fmt.Errorf("give %s the SELinux label %s: %w", f.Name(), strings.TrimRight(label, "\x00"), err)
	}
	return nil
}

// LabelProgram labels a program of the agent's as one of the system's, if SELinux is enabled on the node: in its own directory, below /var/lib,
// systemd may not execute it otherwise (203/EXEC). The path is one of the machine that the agent runs on. Where SELinux only warns, a
// label that can't be set is no error.
func (r Root) LabelProgram(program string) error {
	enforce, state, _ := r.ReadFile(selinuxEnforce)
	if !state.Exists {
		return nil
	}
	err := r.labelProgram(program)
	if err != nil && bytes.Equal(bytes.TrimSpace(enforce), []byte("1")) {
		return fmt.Errorf("systemd may not execute the agent's own program, since SELinux is enforced: %w", err)
	}
	return nil
}

func (r Root) labelProgram(program string) error {
	f, err := Disk{}.OpenFile(program, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	label := programLabel
	if l := r.labels(); l != nil {
		of, err := l.of(regularFile, programLike)
		if err != nil {
			return err
		}
		label = cmp.Or(of, label)
	}
	if x, err := ExtendedOf(f); err == nil && typeOf(string(x[selinuxLabel])) == typeOf(label) {
		return nil
	}
	return setLabel(f, label)
}
