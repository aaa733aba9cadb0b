package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

const (
	resolvConf = "/etc/resolv.conf"
	// resolving is what the names of the probes begin with that resolve a name.
	resolving = "resolving "
	// getent asks as the programs of the node do: by nsswitch.conf, whatever it names.
	getent = "getent"
	// mostDomains bounds how many domains of a search list are asked for, as resolvers do.
	mostDomains = 6
)

// Names returns probes that resolve names as the node's programs do: the API server's if its address is a name, else the domains that the
// node's resolver searches, of which those count that resolve. noted are names of probes from before a change: they are asked again, whatever
// the node's configuration says now, and have to resolve.
func Names(h host.Host, noted []string) []Probe {
	var out []Probe
	add := func(name string, must bool) {
		if slices.ContainsFunc(out, func(p Probe) bool { return p.Name == resolving+name }) {
			return
		}
		p := New(resolving+name, func(ctx context.Context) error {
			err := resolve(ctx, h.Root, name)
			if err != nil && !must && ctx.Err() == nil {
				return ErrAbsent
			}
			return err
		})
		p.Look, p.Elsewhere = "getent ahosts "+name+" and "+resolvConf+" on the node", true
		out = append(out, p)
	}
	for _, n := range noted {
		if name, ok := strings.CutPrefix(n, resolving); ok {
			add(name, true)
		}
	}
	if h.Program(getent) == "" { // and what was not noted can't be asked
		return out
	}
	if name := serverName(h.Root); name != "" {
		add(name, true)
		return out
	}
	for _, domain := range searched(h.Root) {
		add(domain, false)
	}
	return out
}

// serverName returns the name by which the kubelet reaches the API server, or "" if that is an address or not known.
func serverName(r host.Root) string {
	c, err := connect(r)
	if err != nil {
		return ""
	}
	if name := c.Host(); net.ParseIP(name) == nil {
		return name
	}
	return ""
}

// searched returns the domains of the node's search list.
func searched(r host.Root) []string {
	data, _, err := r.ReadFile(resolvConf)
	if err != nil {
		return nil
	}
	var domains []string
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) > 1 && (words[0] == "search" || words[0] == "domain") {
			domains = words[1:] // the last line counts
		}
	}
	domains = slices.DeleteFunc(domains, func(d string) bool { return strings.Trim(d, ".") == "" || strings.HasPrefix(d, "-") })
	return domains[:min(len(domains), mostDomains)]
}

func resolve(ctx context.Context, r host.Root, name string) error {
	out, err := r.Run(ctx, host.Command{Name: getent, Args: []string{"ahosts", name}})
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("no answer within %s", askTimeout)
	case errors.Is(err, host.ErrNoProgram):
		return err
	case err != nil || len(strings.TrimSpace(string(out))) == 0:
		return errors.New("it has no address")
	}
	return nil
}
