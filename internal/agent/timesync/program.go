package timesync

import (
	"context"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
)

// units are those of the programs that are known here. The first one that a node has is that of its program.
var units = []string{"chrony.service", "chronyd.service", disruption.TimeSyncUnit}

// program is the one by which the node keeps its time.
type program struct {
	name  string
	unit  string
	state host.UnitState
	conf  configuration
	// missing says why there is none, and what to do. Empty: there is one.
	missing string
	// unsure reports that something may keep the node's time all the same.
	unsure bool
}

// configuration is where a program has its servers.
type configuration interface {
	// shows reports whether the servers are those of the goal.
	shows(g goal) bool
	// files returns what bring may change, as it was when it was read.
	files() map[string]host.Saved
	// bring makes the servers those of the goal. The note is for people.
	bring(g goal) (note string, err error)
}

// find returns the program by which the node keeps its time. chrony goes first where both are there, as it does with chrony's own
// packages: a unit of systemd-timesyncd is part of systemd in some distributions, and not used.
func (k *Kind) find(ctx context.Context) (program, error) {
	const install = "install systemd-timesyncd or chrony on it"
	if k.host.Units == nil {
		return program{unsure: true, missing: "the node has no systemctl, so how it keeps its time can't be changed"}, nil
	}
	for _, unit := range units {
		state, err := k.host.Units.Show(ctx, unit)
		if err != nil {
			return program{}, err
		}
		if state.Missing() {
			continue
		}
		p := program{unit: unit, state: state}
		if unit == disruption.TimeSyncUnit {
			p.name, p.conf, err = k.timesyncd()
		} else {
			p.name, p.conf, err = k.chrony()
		}
		if err != nil {
			return program{}, err
		}
		if p.conf != nil {
			return p, nil
		}
	}
	for _, other := range []string{"ntpd", "openntpd"} {
		if k.host.Program(other) != "" {
			return program{unsure: true, missing: "the node keeps its time by " + other + ", which refit does not know: " + install}, nil
		}
	}
	return program{missing: "the node has no program that keeps its time: " + install}, nil
}

// timesyncd returns nil if the node has the unit without its program.
func (k *Kind) timesyncd() (string, configuration, error) {
	if k.host.Find("/usr/lib/systemd/systemd-timesyncd", "/lib/systemd/systemd-timesyncd") == "" {
		return "", nil, nil
	}
	c, err := k.readTimesyncd()
	return "systemd-timesyncd", c, err
}

func (k *Kind) chrony() (string, configuration, error) {
	if k.host.Program("chronyd") == "" {
		return "", nil, nil
	}
	for _, path := range []string{"/etc/chrony/chrony.conf", "/etc/chrony.conf"} { // Debian's, and Red Hat's
		f, err := k.host.Save(path)
		if err != nil {
			return "", nil, err
		}
		if f.State.Exists {
			return "chrony", &chronyConf{kind: k, path: path, file: f}, nil
		}
	}
	return "", nil, nil
}

// rootOwned returns the state of a file of root's that everybody may read.
func (k *Kind) rootOwned() (host.State, error) {
	owners, err := host.LoadOwners(k.host.Root)
	if err != nil {
		return host.State{}, err
	}
	uid, gid, err := owners.Resolve("root:root")
	return host.State{Exists: true, UID: uid, GID: gid, Mode: 0o644}, err
}
