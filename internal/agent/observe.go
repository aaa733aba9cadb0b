package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/capi-refit/refit/internal/node"
)

// fileState is all of a file that is compared. The zero value is a file that is not there.
type fileState struct {
	Exists bool   `json:"exists"`
	SHA256 string `json:"sha256,omitempty"`
	UID    int    `json:"uid"`
	GID    int    `json:"gid"`
	Mode   uint32 `json:"mode"`
}

// differs says in which respects observed is not what s says.
func (s fileState) differs(observed fileState) []string {
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

// observe returns what is at p, through symbolic links. An error says why the agent can't replace what is there.
func (r rootFS) observe(p string) (fileState, error) {
	f, state, err := r.open(p)
	if err != nil || f == nil {
		return fileState{}, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fileState{}, fmt.Errorf("read %s: %w", p, err)
	}
	state.SHA256 = hex.EncodeToString(h.Sum(nil))
	return state, nil
}

// open opens the regular file at p and returns it with its state but for the digest. If there is none, the file is nil.
func (r rootFS) open(p string) (*os.File, fileState, error) {
	host, err := r.resolve(p)
	if err != nil {
		return nil, fileState{}, err
	}
	info, err := os.Lstat(host)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fileState{}, nil
	}
	if err != nil {
		return nil, fileState{}, err
	}
	if !info.Mode().IsRegular() { // opening a pipe or a device can block, or worse
		return nil, fileState{}, fmt.Errorf("%s is there already and is %s, not a regular file", p, kindOf(info.Mode()))
	}
	f, err := os.OpenFile(host, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fileState{}, err
	}
	var stat syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &stat); err != nil {
		_ = f.Close()
		return nil, fileState{}, fmt.Errorf("stat %s: %w", p, err)
	}
	return f, fileState{Exists: true, UID: int(stat.Uid), GID: int(stat.Gid), Mode: stat.Mode & modeMask}, nil
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

// wantedState returns what the node shows once f is applied. An error says that the owner is not known on the node.
func wantedState(f node.File, o owners) (fileState, error) {
	sum := sha256.Sum256(f.Content)
	return specState(entry{SHA256: hex.EncodeToString(sum[:]), Owner: f.Owner, Mode: f.Mode}, o)
}

func specState(e entry, o owners) (fileState, error) {
	mode, err := parseMode(e.Mode)
	if err != nil {
		return fileState{}, err
	}
	uid, gid, err := o.resolve(e.Owner)
	return fileState{Exists: true, SHA256: e.SHA256, UID: uid, GID: gid, Mode: mode}, err
}
