// Package ntp is the updater for spec.ntp of a KubeadmConfig: how a node keeps its time.
package ntp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/kubeadmconfig"
)

// Name is the updater's name.
const Name = "ntp"

// Updater brings time servers to running nodes.
type Updater struct{ rules disruption.Rules }

var _ updaters.NodeUpdater = (*Updater)(nil)

// New returns an Updater for which the rules say what a change of the time servers takes.
func New(rules disruption.Rules) *Updater { return &Updater{rules: rules} }

// Name implements updaters.Updater.
func (*Updater) Name() string { return Name }

// Claim implements updaters.Updater. Both fields are claimed, or none: together they are one resource on the node.
func (u *Updater) Claim(ctx context.Context, c fieldset.Change) (updaters.Claim, error) {
	var claim updaters.Claim
	oc, ok := kubeadmconfig.Change(c)
	if !ok {
		return claim, nil
	}
	if !slices.ContainsFunc(oc.Fields, func(f fieldset.Field) bool { return kubeadmconfig.Below(f, Name) }) {
		return claim, nil
	}
	actions, err := u.judge(ctx, oc)
	if ctx.Err() != nil {
		return claim, ctx.Err()
	}
	// What is off is not restarted, and what was off is started.
	off := kubeadmconfig.Mapping(oc.Desired, Name)["enabled"] == false || kubeadmconfig.Mapping(oc.Current, Name)["enabled"] == false
	for _, f := range oc.Fields {
		switch {
		case !kubeadmconfig.Below(f, Name):
		case err != nil:
			claim.Left = append(claim.Left, updaters.Left{Field: f, Reason: err.Error()})
		case off || kubeadmconfig.Below(f, Name, "enabled"):
			claim.Covered = append(claim.Covered, updaters.Covered{
				Field: f, Actions: withoutRestart(actions), Interrupts: kubeadmconfig.Below(f, Name, "enabled"),
			})
		default:
			claim.Covered = append(claim.Covered, updaters.Covered{Field: f, Actions: actions})
		}
	}
	return claim, nil
}

// withoutRestart returns the actions but for the program's own: one that is started or stopped is not restarted as well.
func withoutRestart(actions []disruption.Action) []disruption.Action {
	left := slices.DeleteFunc(slices.Clone(actions), func(a disruption.Action) bool { return slices.Contains(units, a.Unit) })
	if len(left) == 0 {
		return []disruption.Action{{Type: disruption.None}}
	}
	return left
}

// units are those of the programs by which a node may keep its time.
var units = []string{disruption.TimeSyncUnit, "chrony.service", "chronyd.service"}

// judge returns what a change of the time servers takes, or why it can't be made in place.
func (u *Updater) judge(ctx context.Context, oc fieldset.ObjectChange) ([]disruption.Action, error) {
	format := kubeadmconfig.Format(oc.Desired)
	if format == kubeadmconfig.Ignition {
		return nil, errors.New("with format ignition a new machine gets ntpd and its configuration, which refit does not change")
	}
	was, is := kubeadmconfig.Mapping(oc.Current, Name), kubeadmconfig.Mapping(oc.Desired, Name)
	if len(is) == 0 && was["enabled"] == false {
		return nil, errors.New("what was switched off is not switched on by leaving ntp out; set ntp.enabled to true instead")
	}
	if _, err := read(ctx, is, format); err != nil {
		return nil, err
	}
	return u.rules.Domain(disruption.NTP)
}

// Desire implements updaters.NodeUpdater. Without ntp in the spec the node goes back to the servers that it comes with.
//
// What Claim refuses is desired all the same as it is written, so that the node sees that the specs did not change it; it is
// never made, since a change of it is not claimed.
func (*Updater) Desire(d updaters.Desired) ([]node.Resource, error) {
	format := kubeadmconfig.Format(d.BootstrapConfig)
	m := kubeadmconfig.Mapping(d.BootstrapConfig, Name)
	if !kubeadmconfig.Is(d.BootstrapConfig) || len(m) == 0 || format == kubeadmconfig.Ignition {
		return nil, nil
	}
	n := node.NTP{Enabled: m["enabled"] != false} // the default is cloud-init's
	for _, s := range servers(m) {
		if text, err := kubeadmconfig.Text(s, format); err == nil {
			s = text
		}
		if !strings.ContainsFunc(s, unicode.IsControl) {
			n.Servers = append(n.Servers, s)
		}
	}
	return []node.Resource{{NTP: &n}}, nil
}

// read returns the servers of spec.ntp as a new machine reads them, or why they can't be brought to a running node.
func read(ctx context.Context, ntp map[string]any, format string) ([]string, error) {
	for name, v := range ntp {
		_, isFlag := v.(bool)
		_, isList := v.([]any)
		switch {
		case name != "enabled" && name != "servers":
			return nil, fmt.Errorf("this version of refit does not know the field %q of ntp", name)
		case name == "enabled" && !isFlag, name == "servers" && !isList:
			return nil, fmt.Errorf("ntp.%s is of another type than this version of refit knows", name)
		}
	}
	var all []string
	for i, raw := range servers(ntp) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, err := kubeadmconfig.Text(raw, format)
		if err != nil {
			return nil, fmt.Errorf("servers[%d] %w", i, err)
		}
		if !isServer(s) {
			return nil, fmt.Errorf("servers[%d] is neither a host name nor an IP address", i)
		}
		all = append(all, s)
	}
	return all, nil
}

func servers(ntp map[string]any) []string {
	list, _ := ntp["servers"].([]any)
	var all []string
	for _, v := range list {
		s, _ := v.(string)
		all = append(all, s)
	}
	return all
}

// hostName takes underscores too, as resolvers do, but not as the first letter.
var hostName = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?(\.[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?)*\.?$`)

func isServer(s string) bool {
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr.Zone() == ""
	}
	return len(s) <= 253 && hostName.MatchString(s)
}
