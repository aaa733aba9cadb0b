package agent

import (
	"fmt"
	"strconv"

	"github.com/capi-refit/refit/internal/node"
)

const (
	defaultOwner = "root:root"
	defaultMode  = "0644"
	// modeMask is what of a file's mode is compared: permissions, set-uid, set-gid, sticky.
	modeMask = 0o7777
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

// same says whether e and f want the same of a file. Where the names of owners are unknown, their spelling decides.
func (e entry) same(f entry, o owners) bool {
	em, eerr := parseMode(e.Mode)
	fm, ferr := parseMode(f.Mode)
	sameMode := e.Mode == f.Mode || eerr == nil && ferr == nil && em == fm
	return e.SHA256 == f.SHA256 && sameMode && o.same(e.Owner, f.Owner)
}

// record is what was applied last. Only a run that has succeeded changes it.
type record struct {
	Machine node.MachineID   `json:"machine"`
	Digest  string           `json:"digest"`
	Files   map[string]entry `json:"files"`
}

// baselineRecord returns the record that bootstrap would have left.
func baselineRecord(b *node.Baseline) *record {
	rec := &record{Files: map[string]entry{}}
	for _, f := range b.Files {
		rec.Files[f.Path] = entry{
			SHA256: f.SHA256, Owner: orDefault(f.Owner, defaultOwner), Mode: orDefault(f.Mode, defaultMode), Origin: originNone,
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

func parseMode(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > modeMask {
		return 0, fmt.Errorf("mode %q is not permissions in octal", s)
	}
	return uint32(n), nil
}
