package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
)

// ModeMask is what of a file's mode is compared: permissions, set-uid, set-gid, sticky.
const ModeMask = 0o7777

// ParseMode reads permissions in octal.
func ParseMode(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > ModeMask {
		return 0, fmt.Errorf("mode %q is not permissions in octal", s)
	}
	return uint32(n), nil
}

// State is all of a file that is compared. The zero value is a file that is not there.
type State struct {
	Exists bool   `json:"exists"`
	SHA256 string `json:"sha256,omitempty"`
	UID    int    `json:"uid"`
	GID    int    `json:"gid"`
	Mode   uint32 `json:"mode"`
}

// Differs says in which respects observed is not what s says.
func (s State) Differs(observed State) []string {
	if !observed.Exists {
		return []string{"missing"}
	}
	var what []string
	if s.SHA256 != observed.SHA256 {
		what = append(what, "content")
	}
	if s.Mode != observed.Mode {
		what = append(what, "mode")
	}
	if s.UID != observed.UID || s.GID != observed.GID {
		what = append(what, "owner")
	}
	return what
}

// Observe returns what is at p, through symbolic links. An error says why the agent can't replace what is there.
func (r Root) Observe(p string) (State, error) {
	at, err := r.find(p, true)
	if err != nil {
		return State{}, err
	}
	defer at.close()
	return at.observe(p)
}

// Open opens the regular file at p and returns it with its state but for the digest. If there is none, the file is nil.
func (r Root) Open(p string) (*os.File, State, error) {
	at, err := r.find(p, true)
	if err != nil {
		return nil, State{}, err
	}
	defer at.close()
	return at.openRegular(p)
}

func (p *place) openRegular(shown string) (*os.File, State, error) {
	f, stat, err := p.read(shown)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, State{}, nil
	}
	if err != nil {
		return nil, State{}, err
	}
	return f, State{Exists: true, UID: int(stat.Uid), GID: int(stat.Gid), Mode: stat.Mode & ModeMask}, nil
}

func (p *place) observe(shown string) (State, error) {
	f, state, err := p.openRegular(shown)
	if err != nil || f == nil {
		return State{}, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return State{}, fmt.Errorf("read %s: %w", shown, err)
	}
	state.SHA256 = hex.EncodeToString(h.Sum(nil))
	return state, nil
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	}
	return "something else"
}
