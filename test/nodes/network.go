package nodes

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/capi-refit/refit/test/engine"
)

// network is a fleet's own. Each of its nodes keeps its address there, as machines do: elsewhere an engine gives the address of a
// node that reboots to a container that starts meanwhile.
type network struct {
	name string

	mu   sync.Mutex
	last netip.Addr
}

// newNetwork makes a network with addresses that the engine has chosen. An engine takes addresses for containers only where
// somebody has asked for the network's, so it is asked for those that it has chosen.
func newNetwork(ctx context.Context, run string) (*network, error) {
	// Not interrupted: the engine would go on alone, and Stop could come too early to see what it makes.
	ctx = context.WithoutCancel(ctx)
	n := &network{name: "refit-" + run}
	create := func(args ...string) error {
		labels := []string{"network", "create", "--label", label + "=" + run, "--label", ownerLabel + "=" + owner()}
		_, err := docker(ctx, nil, append(append(labels, args...), n.name)...)
		return err
	}
	var err error
	for range 5 { // another process may take them in between
		if err = create(); err != nil {
			return nil, err
		}
		chosen, failure := n.addresses(ctx)
		if failure != nil {
			return nil, failure
		}
		if _, err := docker(ctx, nil, "network", "rm", n.name); err != nil {
			return nil, err
		}
		n.last = chosen.Addr().Next() // the gateway's
		if err = create("--subnet", chosen.String()); err == nil {
			return n, nil
		}
	}
	return nil, err
}

// addresses returns the network's IPv4 addresses.
func (n *network) addresses(ctx context.Context) (netip.Prefix, error) {
	out, err := docker(ctx, nil, "network", "inspect", "--format", "{{range .IPAM.Config}}{{.Subnet}} {{end}}", n.name)
	if err != nil {
		return netip.Prefix{}, err
	}
	for _, field := range strings.Fields(string(out)) {
		if prefix, err := netip.ParsePrefix(field); err == nil && prefix.Addr().Is4() {
			return prefix.Masked(), nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("the engine gave network %s no IPv4 addresses: %q", n.name, out)
}

// next returns an address that no other node has.
func (n *network) next() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = n.last.Next()
	return n.last.String()
}

// removeRun removes the containers and networks of a run.
func removeRun(ctx context.Context, run string) error {
	filter := "label=" + label + "=" + run
	if err := (engine.Engine{}).Remove(ctx, filter); err != nil {
		return err
	}
	out, err := docker(ctx, nil, "network", "ls", "--quiet", "--filter", filter)
	if err != nil || len(out) == 0 {
		return err
	}
	_, err = docker(ctx, nil, append([]string{"network", "rm"}, strings.Fields(string(out))...)...)
	return err
}
