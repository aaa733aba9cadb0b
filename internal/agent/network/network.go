// Package network has what manages a node's network read its files again and bring up what they say: netplan, systemd-networkd,
// NetworkManager or ifupdown, whichever the changed files are of. That a node is still reached after it is for others to see.
package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// File is one that a run changes.
type File struct {
	Path string
	// Before and After are what is in it. Nil: it is not there.
	Before, After []byte
}

// The directories of those that manage networks.
const (
	netplanDir  = "/etc/netplan"
	networkdDir = "/etc/systemd/network"
	managerDir  = "/etc/NetworkManager"
	ifupdown    = "/etc/network/interfaces"
)

// looks is how often, a second apart, links are looked at until they are configured.
const looks = 60

// Network is that of one node.
type Network struct{ Host host.Host }

// manager is a program that manages networks.
type manager struct {
	name string
	dirs []string
	// programs are those that are needed, of which one suffices.
	programs []string
	reload   func(n Network, ctx context.Context, files []File) ([]string, error)
}

func managers() []manager {
	return []manager{
		{"netplan", []string{netplanDir}, []string{"netplan"}, Network.netplan},
		{"NetworkManager", []string{managerDir}, []string{"nmcli"}, Network.networkManager},
		{"ifupdown", []string{ifupdown, ifupdown + ".d"}, []string{"ifreload", "ifup"}, Network.ifupdown},
		{"systemd-networkd", []string{networkdDir}, []string{"networkctl"}, Network.networkd}, // it is also where it manages nothing
	}
}

// managersOf returns those that files are of, which the node has to have. Where a file is nobody's, it is the first of them that the node has.
func (n Network) managersOf(paths []string) ([]manager, error) {
	var mine []manager
	for _, m := range managers() {
		i := slices.IndexFunc(paths, func(p string) bool { return within(p, m.dirs...) })
		switch {
		case i < 0:
		case !n.hasOne(m.programs):
			return nil, fmt.Errorf("the node has no %s, which reads %s", strings.Join(m.programs, " and no "), paths[i])
		default:
			mine = append(mine, m)
		}
	}
	if len(mine) > 0 {
		return mine, nil
	}
	for _, m := range managers() {
		if _, err := n.Host.ReadDir(m.dirs[len(m.dirs)-1]); err == nil && n.hasOne(m.programs) {
			return []manager{m}, nil
		}
	}
	return nil, errors.New("the node has nothing that manages its network: netplan, systemd-networkd, NetworkManager or ifupdown")
}

func (n Network) hasOne(programs []string) bool {
	return slices.ContainsFunc(programs, func(p string) bool { return n.Host.Program(p) != "" })
}

// Check returns an error if the node lacks what reads files.
func (n Network) Check(paths []string) error {
	_, err := n.managersOf(paths)
	return err
}

// Reload brings up what the files on the node say, whichever of their two states that is. It can be repeated. Notes tell what takes a reboot.
func (n Network) Reload(ctx context.Context, files []File) ([]string, error) {
	paths := make([]string, 0, len(files))
	for _, f := range files {
		paths = append(paths, f.Path)
	}
	mine, err := n.managersOf(paths)
	if err != nil {
		return nil, err
	}
	var notes []string
	for _, m := range mine {
		owned := slices.DeleteFunc(slices.Clone(files), func(f File) bool { return !within(f.Path, m.dirs...) })
		more, err := m.reload(n, ctx, owned)
		notes = append(notes, more...)
		if err != nil {
			return notes, err
		}
	}
	return notes, nil
}

// netplan has netplan apply its files, which begins by making those of what is behind it: a file that it can't read changes nothing then. They
// are not made before: what they no longer name would then be gone when netplan looks for what to take down, and stay up.
func (n Network) netplan(ctx context.Context, _ []File) ([]string, error) {
	if err := n.run(ctx, "netplan", "apply"); err != nil {
		return nil, fmt.Errorf("netplan apply: %w", err)
	}
	return nil, nil
}

// networkManager reads all profiles again, and brings up those that have changed and that are to be up by themselves.
func (n Network) networkManager(ctx context.Context, files []File) ([]string, error) {
	if err := n.run(ctx, "nmcli", "connection", "reload"); err != nil {
		return nil, fmt.Errorf("nmcli connection reload: %w", err)
	}
	for _, f := range files {
		text, state, err := n.Host.ReadFile(f.Path)
		if err != nil {
			return nil, err
		}
		if !state.Exists || !within(f.Path, managerDir+"/system-connections") {
			continue
		}
		connection := section(text, "connection")
		if connection["autoconnect"] == "false" {
			continue
		}
		by, name := "uuid", connection["uuid"]
		if name == "" {
			by, name = "id", connection["id"]
		}
		if name == "" {
			by, name = "id", strings.TrimSuffix(path.Base(f.Path), ".nmconnection")
		}
		if err := n.run(ctx, "nmcli", "connection", "up", by, name); err != nil {
			return nil, fmt.Errorf("nmcli connection up %s %s, of %s: %w", by, name, f.Path, err)
		}
	}
	return nil, nil
}

// ifupdown takes down what the files named before or name now, and brings up what they name now.
func (n Network) ifupdown(ctx context.Context, files []File) ([]string, error) {
	if n.Host.Program("ifreload") != "" {
		return nil, n.runScoped(ctx, "ifreload", "-a")
	}
	var all, up []string
	for _, f := range files {
		text, _, err := n.Host.ReadFile(f.Path)
		if err != nil {
			return nil, err
		}
		n.takeDown(ctx, f, text)
		up = append(up, interfaces(text)...)
		all = slices.Concat(all, interfaces(f.Before), interfaces(f.After), interfaces(text))
	}
	slices.Sort(all)
	for _, name := range slices.Compact(all) {
		_ = n.run(ctx, "ifdown", "--force", name) // one that was not up can't be taken down
	}
	slices.Sort(up)
	for _, name := range slices.Compact(up) {
		if err := n.runScoped(ctx, "ifup", "--force", name); err != nil {
			return nil, fmt.Errorf("ifup %s: %w", name, err)
		}
	}
	return nil, nil
}

// takeDown takes down the interfaces of a file as the file had them that is no longer there: ifdown ignores an interface that no file
// defines any more, and leaves it up. now is what is in the file.
func (n Network) takeDown(ctx context.Context, f File, now []byte) {
	for _, text := range [][]byte{f.Before, f.After} {
		if bytes.Equal(text, now) {
			continue
		}
		for _, name := range interfaces(text) {
			// One that was not up, or that another file defines, can't be taken down so.
			_, _ = n.Host.Run(ctx, host.Command{Name: "ifdown", Args: []string{"--force", "-i", "/dev/stdin", name}, Stdin: text})
		}
	}
}

// interfaces returns those that a file of ifupdown brings up by itself, but for the loopback.
func interfaces(text []byte) []string {
	var out []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) > 1 && (fields[0] == "auto" || fields[0] == "allow-auto" || fields[0] == "allow-hotplug") {
			out = append(out, fields[1:]...)
		}
	}
	return slices.DeleteFunc(out, func(name string) bool {
		return name == "lo" || strings.HasPrefix(name, "-") || strings.Contains(name, "/")
	})
}

// section returns the last value of each key of a section of a file in the form of systemd's and NetworkManager's.
func section(text []byte, name string) map[string]string {
	out := map[string]string{}
	in := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			in = strings.Trim(line, "[]")
			continue
		}
		if key, value, ok := strings.Cut(line, "="); ok && in == name && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ";") {
			out[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return out
}

// run runs a program that may quote keys of a wireless network or a VPN, so nothing of what it says is told.
func (n Network) run(ctx context.Context, program string, args ...string) error {
	if _, err := n.Host.Run(ctx, host.Command{Name: program, Args: args}); err != nil {
		return fmt.Errorf("%w (see journalctl -b on the node)", err)
	}
	return nil
}

// runScoped is run in a scope of its own, where the node has systemd: what a program starts and leaves behind, such as a DHCP client, would be
// killed at the end of the run with all that is in its unit.
func (n Network) runScoped(ctx context.Context, program string, args ...string) error {
	const scope = "systemd-run"
	if info, err := n.Host.Stat("/run/systemd/system"); err != nil || !info.IsDir() || n.Host.Program(scope) == "" {
		return n.run(ctx, program, args...)
	}
	return n.run(ctx, scope, append([]string{"--scope", "--quiet", "--collect", "--no-ask-password", "--", program}, args...)...)
}

func within(p string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") })
}
