package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"

	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/staticpod"
)

// sinceFile is in the agent's own directory.
const sinceFile = "controlplane-since.json"

// since is what was when a change was begun, if that is not what was when it was planned: a new version of Kubernetes is brought to the
// node between the two. Its manifests must not be taken for those of the change, nor be replaced by those of the old version.
type since struct {
	// Change is the digest of what the plan has saved, by which a change is told from the one before it.
	Change string `json:"change"`
	Saved  Saved  `json:"saved"`
}

func (k *Kind) sincePath() string { return filepath.Join(k.host.Private, sinceFile) }

func changeDigest(c kind.Change) string {
	sum := sha256.Sum256(c.Before)
	return hex.EncodeToString(sum[:])
}

// begin returns what the change goes by: what the plan has saved, or, if the node runs another version of Kubernetes since, what there
// was when Make was first called. The certificate is the plan's.
func (k *Kind) begin(ctx context.Context, c kind.Change, b Saved) (Saved, error) {
	if kept, ok, err := k.loadSince(c, b); ok || err != nil {
		return kept, err
	}
	s, err := k.look()
	if err != nil {
		return Saved{}, err
	}
	if !otherVersion(s, b) {
		return b, nil
	}
	now, err := k.remember(ctx, s)
	if err != nil {
		return Saved{}, err
	}
	now.Remade, now.Patience, now.At = true, b.Patience, b.At
	data, err := json.Marshal(since{Change: changeDigest(c), Saved: now.manifests()})
	if err != nil {
		return Saved{}, err
	}
	return now.withCertificate(b), k.host.Disk.WriteFile(k.sincePath(), data)
}

// begun is begin for Undo: if the node runs another version of Kubernetes, and nothing was kept, Make has done nothing.
func (k *Kind) begun(c kind.Change, b Saved) (Saved, bool, error) {
	if kept, ok, err := k.loadSince(c, b); ok || err != nil {
		return kept, ok, err
	}
	s, err := k.look()
	return b, !otherVersion(s, b), err
}

// loadSince returns what was kept for a change, if it was. What can't be read is not taken for nothing.
func (k *Kind) loadSince(c kind.Change, b Saved) (Saved, bool, error) {
	data, err := k.host.Disk.ReadFile(k.sincePath())
	if errors.Is(err, fs.ErrNotExist) {
		return Saved{}, false, nil
	}
	if err != nil {
		return Saved{}, false, err
	}
	var kept since
	if err := json.Unmarshal(data, &kept); err != nil {
		return Saved{}, false, fmt.Errorf("%s can't be read: it is not JSON", k.sincePath())
	}
	return kept.Saved.withCertificate(b), kept.Change == changeDigest(c), nil
}

// manifests returns s with the manifests only, without a key.
func (s Saved) manifests() Saved {
	files := map[string]File{}
	for p, f := range s.Files {
		if path.Dir(p) == staticpod.Dir {
			files[p] = f
		}
	}
	s.Files = files
	return s
}

// withCertificate returns s with the files of other that are no manifests.
func (s Saved) withCertificate(other Saved) Saved {
	files := map[string]File{}
	maps.Copy(files, s.Files)
	for p, f := range other.Files {
		if path.Dir(p) != staticpod.Dir {
			files[p] = f
		}
	}
	s.Files = files
	return s
}

// otherVersion reports whether the API server is of another version than it was. One whose manifest is missing is taken for the same.
func otherVersion(s shown, b Saved) bool {
	old, err := staticpod.Parse(b.Files[manifestPath(apiServer)].Data)
	if err != nil || s.manifests == nil {
		return false
	}
	_, was := splitImage(container(&old, apiServer).Image)
	_, is := splitImage(container(s.manifests[apiServer], apiServer).Image)
	return was != is
}
