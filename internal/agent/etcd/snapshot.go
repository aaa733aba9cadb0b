package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
)

const (
	// kept is how many snapshots stay on a node.
	kept = 3
	// pageSize is what the size of a database is a multiple of. etcd appends a SHA-256 to a snapshot, so that one which was cut
	// off can be told (etcdutl knows by the same sign whether there is one).
	pageSize = 512
)

// snapshotForm matches the names of snapshots: when, and the first digits of the digest that etcd has sent along.
var snapshotForm = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z-[0-9a-f]{12}\.db$`)

// Store keeps snapshots in a directory of the node that belongs to the agent.
type Store struct {
	// Dir is where the snapshots are.
	Dir  string
	Disk host.Disk
}

// Save takes a snapshot, verifies it, and removes all but the newest. Whether there is room for it, which is that of Client.Size, is not
// looked at here. It returns where the snapshot is, which etcdutl can restore. It has secrets of the cluster in it and is for root alone.
func (s Store) Save(ctx context.Context, c *Client, now time.Time) (string, error) {
	if err := s.Disk.Mkdirs(s.Dir, 0o700); err != nil {
		return "", err
	}
	s.Disk.Sweep(s.Dir) // of one that was interrupted
	temp, digest, err := s.receive(ctx, c)
	if err != nil {
		return "", fmt.Errorf("snapshot of etcd: %w", err)
	}
	name := filepath.Join(s.Dir, now.UTC().Format("20060102T150405Z")+"-"+digest[:12]+".db")
	if err := s.Disk.Rename(temp, name); err != nil {
		return "", errors.Join(err, s.Disk.Remove(temp))
	}
	return name, s.prune(filepath.Base(name))
}

// receive writes a snapshot to a temporary file and verifies it.
func (s Store) receive(ctx context.Context, c *Client) (name, digest string, err error) {
	f, err := s.Disk.CreateTemp(s.Dir)
	if err != nil {
		return "", "", err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			_ = s.Disk.Remove(f.Name())
		}
	}()
	sum := &trailer{hash: sha256.New()}
	err = c.post(ctx, "/v3/maintenance/snapshot", "{}", func(r io.Reader) error {
		return stream(r, io.MultiWriter(f, sum))
	})
	if err != nil {
		return "", "", err
	}
	if digest, err = sum.verify(); err != nil {
		return "", "", err
	}
	if !s.Disk.NoSync {
		err = f.Sync()
	}
	return f.Name(), digest, err
}

// stream copies the blobs of a stream of JSON. A stream that ends with an error of etcd's, or early, is one.
func stream(r io.Reader, w io.Writer) error {
	decoder := json.NewDecoder(r)
	for {
		var part struct {
			Result *struct {
				Blob []byte `json:"blob"`
			} `json:"result"`
			Error *struct{} `json:"error"`
		}
		err := decoder.Decode(&part)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return errors.New("it breaks off")
		case part.Error != nil || part.Result == nil:
			return errors.New("etcd could not go on with it")
		}
		if _, err := w.Write(part.Result.Blob); err != nil {
			return err
		}
	}
}

// trailer takes the digest of all but the last bytes, which are to be that digest.
type trailer struct {
	hash interface {
		io.Writer
		Sum(b []byte) []byte
	}
	size int64
	last []byte
}

// Write implements io.Writer.
func (t *trailer) Write(p []byte) (int, error) {
	t.size += int64(len(p))
	t.last = append(t.last, p...)
	if n := len(t.last) - sha256.Size; n > 0 {
		_, _ = t.hash.Write(t.last[:n]) // a hash does not fail
		t.last = append(t.last[:0], t.last[n:]...)
	}
	return len(p), nil
}

// verify returns the digest, in hex, if all is there.
func (t *trailer) verify() (string, error) {
	if t.size <= sha256.Size || t.size%pageSize != sha256.Size {
		return "", fmt.Errorf("it is incomplete: %d bytes are not a database with its digest", t.size)
	}
	if sum := t.hash.Sum(nil); !bytes.Equal(sum, t.last) {
		return "", errors.New("it is damaged: its digest does not match")
	}
	return hex.EncodeToString(t.last), nil
}

// prune removes all snapshots but the one that was saved just now and the newest of the others. Which these are is told by their names, and
// so by the node's clock, which may have been ahead when they were taken.
func (s Store) prune(saved string) error {
	names, err := s.names()
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(names, func(name string) bool { return name == saved })
	for _, name := range others[:max(0, len(others)-(kept-1))] {
		if err := s.Disk.Remove(filepath.Join(s.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// names returns those of the snapshots, oldest first.
func (s Store) names() ([]string, error) {
	entries, err := s.Disk.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if snapshotForm.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}
