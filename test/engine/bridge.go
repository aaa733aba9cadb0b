package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
)

const (
	// defaultBridge is for the engine itself, which will not start without one. Nothing uses it.
	defaultBridge = "refit-engine"
	networkBridge = "refit-nodes"
)

// FreePrefix returns the first two bytes of addresses that this machine does not have.
func FreePrefix() (string, error) {
	taken, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("looking for free addresses: %w", err)
	}
	for n := 213; n < 244; n++ {
		prefix := fmt.Sprintf("10.%d", n)
		_, network, err := net.ParseCIDR(prefix + ".0.0/16")
		if err != nil {
			return "", err
		}
		if !overlaps(network, taken) {
			return prefix, nil
		}
	}
	return "", errors.New("no free addresses between 10.213.0.0 and 10.244.0.0")
}

func overlaps(network *net.IPNet, taken []net.Addr) bool {
	for _, address := range taken {
		if other, ok := address.(*net.IPNet); ok && (network.Contains(other.IP) || other.Contains(network.IP)) {
			return true
		}
	}
	return false
}

func addBridge(ctx context.Context, name, address string) error {
	for _, args := range [][]string{
		{"link", "add", name, "type", "bridge"}, {"address", "add", address, "dev", name}, {"link", "set", name, "up"},
	} {
		if err := command(ctx, "ip", args...); err != nil {
			return err
		}
	}
	return nil
}

func removeBridge(ctx context.Context, name string) error {
	if _, err := net.InterfaceByName(name); err != nil {
		return nil //nolint:nilerr // it is not there
	}
	return command(ctx, "ip", "link", "delete", name)
}

// rules let containers on a bridge reach each other whatever else the packet filter says, and nothing beyond this machine:
// tests have addresses that are to be dead, and somewhere outside something may answer at them.
func rules(bridge string) [][]string {
	mark := []string{"-m", "comment", "--comment", bridge}
	return [][]string{
		append([]string{"FORWARD", "-i", bridge, "!", "-o", bridge, "-j", "REJECT"}, mark...),
		append([]string{"FORWARD", "-i", bridge, "-o", bridge, "-j", "ACCEPT"}, mark...),
	}
}

// enclose adds the rules of a bridge. Where there is no iptables, there is nothing that could be in the way.
func enclose(ctx context.Context, bridge string) error {
	if _, err := exec.LookPath("iptables"); err != nil {
		return nil //nolint:nilerr // see above
	}
	for _, rule := range rules(bridge) {
		if err := command(ctx, "iptables", append([]string{"--wait", "--insert"}, rule...)...); err != nil {
			return err
		}
	}
	return nil
}

// open removes the rules of a bridge, as often as they are there.
func open(ctx context.Context, bridge string) error {
	if _, err := exec.LookPath("iptables"); err != nil {
		return nil //nolint:nilerr // then enclose added nothing
	}
	for _, rule := range rules(bridge) {
		for command(ctx, "iptables", append([]string{"--wait", "--check"}, rule...)...) == nil {
			if err := command(ctx, "iptables", append([]string{"--wait", "--delete"}, rule...)...); err != nil {
				return err
			}
		}
	}
	return nil
}

func command(ctx context.Context, name string, args ...string) error {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}
