package network

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
)

// networkd has systemd-networkd read its files again, takes away the devices that no file of these makes any more, and configures again
// the links that the files are about. Whether they come up is waited for.
func (n Network) networkd(ctx context.Context, files []File) ([]string, error) {
	if err := n.run(ctx, "networkctl", "reload"); err != nil {
		return nil, fmt.Errorf("networkctl reload: %w", err)
	}
	if err := n.deleteDevices(ctx, files); err != nil {
		return nil, err
	}
	if err := n.reconfigure(ctx, files); err != nil {
		return nil, err
	}
	for _, f := range files {
		if path.Ext(f.Path) == ".link" {
			return []string{f.Path + " is read when a device appears: for those that are there it takes a reboot"}, nil
		}
	}
	return nil, nil
}

func (n Network) reconfigure(ctx context.Context, files []File) error {
	all, err := n.links(ctx)
	if err != nil {
		return err
	}
	var mine []string
	for _, l := range all {
		if l.setup != "unmanaged" && l.kind != "loopback" && about(files, l.name) {
			mine = append(mine, l.name)
		}
	}
	if len(mine) == 0 {
		return nil
	}
	if err := n.run(ctx, "networkctl", append([]string{"reconfigure"}, mine...)...); err != nil {
		return fmt.Errorf("networkctl reconfigure %s: %w", strings.Join(mine, " "), err)
	}
	return n.awaitLinks(ctx, mine)
}

// deleteDevices takes away virtual devices: networkd makes them, and leaves them when their file goes.
func (n Network) deleteDevices(ctx context.Context, files []File) error {
	for _, f := range files {
		if path.Ext(f.Path) != ".netdev" {
			continue
		}
		now, _, err := n.Host.ReadFile(f.Path)
		if err != nil {
			return err
		}
		for _, text := range [][]byte{f.Before, f.After} {
			name := section(text, "NetDev")["Name"]
			if name == section(now, "NetDev")["Name"] || !n.hasLink(name) {
				continue
			}
			if err := n.run(ctx, "networkctl", "delete", name); err != nil {
				return fmt.Errorf("networkctl delete %s: %w", name, err)
			}
		}
	}
	return nil
}

func (n Network) hasLink(name string) bool {
	_, err := n.Host.Stat("/sys/class/net/" + name)
	return err == nil && name != "" && !strings.Contains(name, "/") && !strings.HasPrefix(name, "-")
}

// about reports whether files are about a link, before or after they change. One that doesn't name its links may be about any.
func about(files []File, link string) bool {
	if len(files) == 0 {
		return true
	}
	return slices.ContainsFunc(files, func(f File) bool {
		return slices.ContainsFunc([][]byte{f.Before, f.After}, func(text []byte) bool { return text != nil && names(f, text, link) })
	})
}

func names(f File, text []byte, link string) bool {
	if path.Ext(f.Path) == ".netdev" {
		return section(text, "NetDev")["Name"] == link
	}
	patterns := strings.Fields(section(text, "Match")["Name"])
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, link)
		return ok || err != nil || strings.HasPrefix(pattern, "!")
	})
}

// link is one as networkctl lists it.
type link struct{ name, kind, setup string }

func (n Network) links(ctx context.Context) ([]link, error) {
	out, err := n.Host.Run(ctx, host.Command{Name: "networkctl", Args: []string{"list", "--no-legend", "--no-pager"}})
	if err != nil {
		return nil, fmt.Errorf("networkctl list: %w", err)
	}
	var all []link
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) >= 5 { // its number, name, type, and two states
			all = append(all, link{name: f[1], kind: f[2], setup: f[len(f)-1]})
		}
	}
	return all, nil
}

// awaitLinks waits until some links are configured.
func (n Network) awaitLinks(ctx context.Context, names []string) error {
	for look := 1; len(names) > 0; look++ {
		waiting, err := n.unconfigured(ctx, names)
		if err != nil || len(waiting) == 0 {
			return err
		}
		if look >= looks {
			return fmt.Errorf("after %d seconds %s (see networkctl status on the node)", looks, strings.Join(waiting, ", "))
		}
		if err := n.Host.Clock.Wait(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}

// unconfigured returns those of some links that are not configured yet, and how they are. One that has failed is an error.
func (n Network) unconfigured(ctx context.Context, names []string) (waiting []string, err error) {
	all, err := n.links(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		switch {
		case !slices.Contains(names, l.name) || l.setup == "configured" || l.setup == "unmanaged":
		case l.setup == "failed":
			return nil, fmt.Errorf("%s is failed (see networkctl status %s on the node)", l.name, l.name)
		default:
			waiting = append(waiting, l.name+" is "+l.setup)
		}
	}
	return waiting, nil
}
