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
	target, err := h.Resolve(p)
	if err != nil {
		return err
	}
	return h.Disk.Write(target, bytes.NewReader(content), want)
}

// RemoveFile deletes the file at p. That it is gone already is fine.
func (h Host) RemoveFile(p string) error {
	target, err := h.Resolve(p)
	if err != nil {
		return err
	}
	return h.Disk.Remove(target)
}
