package host

import (
	"bytes"
	"io"
)

// Host is a node as a kind of resource gets it.
type Host struct {
	Root
	Disk  Disk
	Clock Clock
	// Units is nil on a node without systemd.
	Units Units
}

// ReadFile returns the bytes and the state of the regular file at p, through symbolic links. One that is not there has the zero
// State.
func (r Root) ReadFile(p string) ([]byte, State, error) {
	f, state, err := r.Open(p)
	if err != nil || f == nil {
		return nil, State{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	return data, state, err
}

// WriteFile puts content at p, through symbolic links, with the mode and the owner of want. Readers see the old file or the new
// one, and after a loss of power one of them is there.
func (h Host) WriteFile(p string, content []byte, want State) error {
	return h.Write(p, bytes.NewReader(content), want)
}

// Write is WriteFile with what content returns. Extended attributes of the file that is there stay, and it gets the label that the node's
// SELinux policy has for its path.
func (h Host) Write(p string, content io.Reader, want State) error {
	return h.WriteBack(p, content, want, nil)
}

// WriteBack is Write for a file that was there before, with the extended attributes that it had. Nil: they are not known.
func (h Host) WriteBack(p string, content io.Reader, want State, x Extended) error {
	at, err := h.find(p, true)
	if err != nil {
		return err
	}
	defer at.close()
	at.labels = h.labels()
	return at.write(h.Disk, content, want, x)
}

// RemoveFile deletes the file at p. That it is gone already is fine.
func (h Host) RemoveFile(p string) error {
	at, err := h.find(p, true)
	if err != nil {
		return err
	}
	defer at.close()
	return at.remove(h.Disk)
}

// RemoveAll deletes what is at p, and all below it. A link in its place is deleted itself, and none is followed.
func (h Host) RemoveAll(p string) error {
	at, err := h.find(p, false)
	if err != nil {
		return err
	}
	defer at.close()
	return at.removeAll()
}

// Link puts a symbolic link at p, in the place of what is there.
func (h Host) Link(target, p string) error {
	at, err := h.find(p, false)
	if err != nil {
		return err
	}
	defer at.close()
	return at.link(h.Disk, target)
}

// SweepBeside removes the temporary files that a run which died has left beside the file at p.
func (h Host) SweepBeside(p string) {
	at, err := h.find(p, true)
	if err != nil {
		return
	}
	defer at.close()
	if len(at.missing) == 0 {
		at.name = "."
		at.sweep()
	}
}
