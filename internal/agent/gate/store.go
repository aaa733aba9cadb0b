package gate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/capi-refit/refit/internal/node"
)

const (
	agentPrefix     = "refit-node-"
	signatureSuffix = ".sig"
	incomingPrefix  = ".incoming-"
	indexName       = "rollback-index"
	lockName        = "lock"

	maxAgent = 64 << 20
	maxSmall = 64 << 10
	// kept is how many agents stay: the ones before may still be at work.
	kept = 3

	lockInterval = 100 * time.Millisecond
)

// store are the agents that the gate has.
type store struct {
	path    string
	dir     *os.Root // what is at path
	signers func() (signers, error)
	arch    string
}

// index returns the lowest rollback index that an agent may have. One that can't be read is not taken for none.
func (s store) index() (int64, error) {
	data, err := read(filepath.Join(s.path, indexName), maxSmall)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s does not hold a number", indexName)
	}
	return n, nil
}

// judge returns an error unless an agent with this signature may run on this node now.
func (s store) judge(sig node.AgentSignature) error {
	trusted, err := s.signers()
	if err != nil {
		return err
	}
	if err := sig.Verify(trusted); err != nil {
		return err
	}
	if sig.OS != "linux" || sig.Architecture != s.arch {
		return fmt.Errorf("the agent is signed for %s/%s, and this node is linux/%s", sig.OS, sig.Architecture, s.arch)
	}
	lowest, err := s.index()
	if err != nil {
		return err
	}
	if sig.RollbackIndex < lowest {
		return fmt.Errorf("the agent's rollback index is %d, and this node has had one with %d: sign a newer agent", sig.RollbackIndex, lowest)
	}
	return nil
}

// signature reads that of an agent that is there.
func (s store) signature(digest string) (node.AgentSignature, error) {
	data, err := read(filepath.Join(s.path, agentPrefix+digest+signatureSuffix), maxSmall)
	if err != nil {
		return node.AgentSignature{}, err
	}
	sig, err := node.ParseAgentSignature(data)
	if err == nil && sig.SHA256 != digest {
		err = errors.New("its signature is another one's")
	}
	return sig, err
}

// find opens an agent that is there as it was brought, and may run. An error that is errNotThere says that it has to be brought.
func (s store) find(digest string) (*os.File, error) {
	sig, err := s.signature(digest)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotThere, err)
	}
	if err := s.judge(sig); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotThere, err) // there may be another signature
	}
	f, err := open(filepath.Join(s.path, agentPrefix+digest))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotThere, err)
	}
	sum := sha256.New()
	if _, err = io.Copy(sum, f); err == nil && hex.EncodeToString(sum.Sum(nil)) != digest {
		err = fmt.Errorf("%w: it is not what was brought", errNotThere)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// take takes an agent, which may run from then on.
func (s store) take(ctx context.Context, sig node.AgentSignature, size int64, body io.Reader) error {
	if size <= 0 || size > maxAgent {
		return fmt.Errorf("an agent of %d bytes is not taken: it may have up to %d", size, maxAgent)
	}
	if err := s.judge(sig); err != nil { // before a byte is written
		return err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if s.has(sig) {
		return nil // somebody else was faster
	}
	incoming, err := s.receive(sig.SHA256, size, body)
	if err != nil {
		return err
	}
	if err := s.judge(sig); err != nil { // the one before may have raised the index
		return errors.Join(err, s.dir.Remove(incoming))
	}
	return s.keep(sig, incoming)
}

// keep gives an agent its name, after its signature has one and the index is what it says.
func (s store) keep(sig node.AgentSignature, incoming string) error {
	text, err := json.Marshal(sig)
	if err != nil {
		return err
	}
	name := agentPrefix + sig.SHA256
	if err := s.write(name+signatureSuffix, append(text, '\n')); err != nil {
		return err
	}
	if err := s.write(indexName, fmt.Appendln(nil, sig.RollbackIndex)); err != nil {
		return err
	}
	if err := s.dir.Rename(incoming, name); err != nil {
		return err
	}
	return errors.Join(s.sync("."), s.prune(name))
}

// has reports whether an agent is there, with a signature that says as much.
func (s store) has(sig node.AgentSignature) bool {
	known, err := s.signature(sig.SHA256)
	if err != nil || known.RollbackIndex < sig.RollbackIndex {
		return false
	}
	f, err := s.find(sig.SHA256)
	if err == nil {
		_ = f.Close()
	}
	return err == nil
}

// receive writes what comes to a file that nobody runs, until its digest is proved.
func (s store) receive(digest string, size int64, body io.Reader) (_ string, err error) {
	if err := s.sweep(); err != nil {
		return "", err
	}
	name := incomingPrefix + digest
	f, err := s.dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	defer func() {
		_ = f.Close()
		if err != nil {
			_ = s.dir.Remove(name)
		}
	}()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(body, size))
	if err != nil {
		return "", err
	}
	if n != size {
		return "", fmt.Errorf("%d of %d bytes came; trying again may help", n, size)
	}
	if hex.EncodeToString(sum.Sum(nil)) != digest {
		return "", errors.New("what came is not what was signed")
	}
	return name, errors.Join(f.Chmod(0o700), f.Sync(), f.Close())
}

// sweep removes what a gate that died has left. One at a time takes agents.
func (s store) sweep() error {
	return s.each(func(e fs.DirEntry) error {
		if strings.HasPrefix(e.Name(), incomingPrefix) {
			return s.dir.Remove(e.Name())
		}
		return nil
	})
}

// present is an agent that is there.
type present struct {
	fs.FileInfo
	// index is -1 for an agent whose signature is missing or can't be read, which is not run.
	index int64
}

// prune removes all agents but the one that was just taken and those with the highest rollback indexes, of which the newest: who brings
// old ones again does not drive out one that has a higher index.
func (s store) prune(taken string) error {
	var agents []present
	err := s.each(func(e fs.DirEntry) error {
		digest, ok := strings.CutPrefix(e.Name(), agentPrefix)
		if !ok || strings.HasSuffix(digest, signatureSuffix) || e.Name() == taken {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		agent := present{FileInfo: info, index: -1}
		if sig, err := s.signature(digest); err == nil {
			agent.index = sig.RollbackIndex
		}
		agents = append(agents, agent)
		return nil
	})
	slices.SortFunc(agents, func(a, b present) int {
		return cmp.Or(cmp.Compare(b.index, a.index), b.ModTime().Compare(a.ModTime()), strings.Compare(a.Name(), b.Name()))
	})
	for _, old := range agents[min(kept-1, len(agents)):] {
		err = errors.Join(err, s.remove(old.Name()), s.remove(old.Name()+signatureSuffix))
	}
	return err
}

// remove deletes a file. That it is gone already is fine.
func (s store) remove(name string) error {
	if err := s.dir.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (s store) each(do func(fs.DirEntry) error) error {
	entries, err := fs.ReadDir(s.dir.FS(), ".")
	for _, e := range entries {
		err = errors.Join(err, do(e))
	}
	return err
}

// digests are those of the agents that are there.
func (s store) digests() ([]string, error) {
	var all []string
	err := s.each(func(e fs.DirEntry) error {
		if digest, ok := strings.CutPrefix(e.Name(), agentPrefix); ok && !strings.HasSuffix(digest, signatureSuffix) {
			all = append(all, digest)
		}
		return nil
	})
	return all, err
}

// write replaces a small file.
func (s store) write(name string, data []byte) error {
	temporary := incomingPrefix + name
	f, err := s.dir.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, bytes.NewReader(data))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return s.dir.Rename(temporary, name)
}

func (s store) sync(name string) error {
	f, err := s.dir.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// lock waits until nobody else takes an agent.
func (s store) lock(ctx context.Context) (unlock func(), err error) {
	f, err := s.dir.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("somebody else brings an agent: %w", context.Cause(ctx)), f.Close())
		case <-time.After(lockInterval):
		}
	}
}
