package nodes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
)

// standIn is a node of package nodetest.
type standIn struct{ *nodetest.Node }

func (s standIn) exec(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	cmd := s.Command(ctx, args[0], args[1:]...)
	cmd.Stdin = stdin
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	return out, explain(err, stderr.Bytes())
}

func (s standIn) read(_ context.Context, path string) (File, error) {
	path = filepath.Join(s.Root(), path)
	content, err := os.ReadFile(path)
	if err != nil {
		return File{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return File{}, err
	}
	f := File{Content: content, Mode: octal(fmt.Sprintf("%o", info.Mode().Perm()))}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		f.Owner = fmt.Sprintf("%d:%d", stat.Uid, stat.Gid)
		if int(stat.Uid) == os.Getuid() && int(stat.Gid) == os.Getgid() {
			f.Owner = "root:root" // whom the stand-in takes us for
		}
	}
	return f, nil
}

func (s standIn) power(_ context.Context, verb string) (remote.Address, error) {
	switch verb {
	case "pause":
		s.Freeze()
	case "unpause":
		s.Thaw()
	default:
		return remote.Address{}, errors.ErrUnsupported
	}
	return s.Address(), nil
}

// explain adds the end of stderr to an error.
func explain(err error, stderr []byte) error {
	if err == nil {
		return nil
	}
	stderr = bytes.TrimSpace(stderr)
	return fmt.Errorf("%w: %s", err, stderr[max(0, len(stderr)-500):])
}
