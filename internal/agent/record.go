package agent

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/node"
)

const (
	defaultOwner = "root:root"
	defaultMode  = "0644"
)

// origin says what was at a path before it was first applied.
type origin string

const (
	// originNone: nothing, or what bootstrap laid down, which goes with the spec.
	originNone origin = "none"
	// originKept: a file of which a copy is kept.
	originKept origin = "kept"
)

// entry is what was applied at a path, as the specs said it.
type entry struct {
	SHA256 string `json:"sha256"`
	Owner  string `json:"owner"`
	Mode   string `json:"mode"`
	Origin origin `json:"origin"`
}

// same reports whether e and f want the same of a file. Where the names of owners are unknown, their spelling decides.
func (e entry) same(f entry, o host.Owners) bool {
	em, eerr := host.ParseMode(e.Mode)
	fm, ferr := host.ParseMode(f.Mode)
	sameMode := e.Mode == f.Mode || eerr == nil && ferr == nil && em == fm
	return e.SHA256 == f.SHA256 && sameMode && o.Same(e.Owner, f.Owner)
}

// record is what was applied last. Only a run that has succeeded changes it.
type record struct {
	Machine node.MachineID   `json:"machine"`
	Digest  string           `json:"digest"`
	Files   map[string]entry `json:"files"`
	// Others are the resources of other kinds, as the specs said them, by what they are called.
	Others map[string]node.Resource `json:"others,omitempty"`
}

// baselineRecord returns the record that bootstrap would have left.
func baselineRecord(b *node.Baseline) *record {
	rec := &record{Files: map[string]entry{}, Others: map[string]node.Resource{}}
	for _, f := range b.Files {
		rec.Files[f.Path] = entry{
			SHA256: f.SHA256, Owner: orDefault(f.Owner, defaultOwner), Mode: orDefault(f.Mode, defaultMode), Origin: originNone,
		}
	}
	for _, r := range b.Resources {
		if ref, ok := r.Ref(); ok {
			rec.Others[ref.String()] = r
		}
	}
	return rec
}

func orDefault(s, standard string) string {
	if s == "" {
		return standard
	}
	return s
}

// wantedState returns what the node shows once f is applied. An error says that the owner is not known on the node.
func wantedState(f node.File, o host.Owners) (host.State, error) {
	sum := sha256.Sum256(f.Content)
	return specState(entry{SHA256: hex.EncodeToString(sum[:]), Owner: f.Owner, Mode: f.Mode}, o)
}

func specState(e entry, o host.Owners) (host.State, error) {
	mode, err := host.ParseMode(e.Mode)
	if err != nil {
		return host.State{}, err
	}
	uid, gid, err := o.Resolve(e.Owner)
	return host.State{Exists: true, SHA256: e.SHA256, UID: uid, GID: gid, Mode: mode}, err
}
