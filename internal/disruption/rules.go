package disruption

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Domain is a part of a machine that is no file: what a change of it takes does not depend on a path.
type Domain string

// The domains.
const (
	// SSHKeys are the keys by which users log in.
	SSHKeys Domain = "SSHKeys"
	// Users are the accounts, but for their keys.
	Users Domain = "Users"
	// NTP is how the node keeps its time.
	NTP Domain = "NTP"
	// KubeletArguments are what the specs tell the kubelet on its command line.
	KubeletArguments Domain = "KubeletArguments"
	// ControlPlane is the static pods of a control-plane node.
	ControlPlane Domain = "ControlPlane"
	// Taints are those of the Node.
	Taints Domain = "Taints"
	// KubernetesVersion is the version of Kubernetes that the node runs. The kubelet is restarted for it whatever the actions.
	KubernetesVersion Domain = "KubernetesVersion"
)

// TimeSyncUnit stands for the unit of the program by which a node keeps its time, whichever that is on the node.
const TimeSyncUnit = "systemd-timesyncd.service"

// domains are all of them, in the order in which they are shown.
var domains = []Domain{SSHKeys, Users, NTP, KubeletArguments, ControlPlane, Taints, KubernetesVersion}

// OnFailure is what becomes of a node on which an action has failed, or has taken longer than its timeout.
type OnFailure string

// What becomes of a node on which an action has failed. Where nobody says, it is rolled back.
const (
	// RebootOnFailure reboots the node with what was changed, once.
	RebootOnFailure OnFailure = "Reboot"
	// RollbackOnFailure puts back what was changed, and does the actions again.
	RollbackOnFailure OnFailure = "Rollback"
	// StopOnFailure leaves the node as it is, for somebody to look at.
	StopOnFailure OnFailure = "Stop"
)

// UnitRule says which actions a change of a systemd unit takes: of its file in /etc/systemd/system and of the drop-ins there.
type UnitRule struct {
	// Name of the unit, which is matched exactly.
	Name string `json:"name"`
	// Actions are done after a change. A DaemonReload comes before them, whether or not it is named.
	Actions []Action `json:"actions"`
	// From names the policies that the rule comes from. Empty: it is built in.
	From string `json:"from,omitempty"`
}

// Rules says what changes take on a node.
type Rules struct {
	// Files are the rules for files, by path.
	Files Table `json:"files"`
	// Units are the rules for units. Between equal names the later one counts. A rule of Files counts instead if it comes from a
	// policy and its path is that of the unit's file, of the directory of its drop-ins, or below that.
	Units []UnitRule `json:"units,omitempty"`
	// Domains are the actions of what is no file. A domain that is not here is not changed in place.
	Domains map[Domain][]Action `json:"domains,omitempty"`
	// DomainsFrom names the policies that the actions of a domain come from. Those of others are built in.
	DomainsFrom map[Domain]string `json:"domainsFrom,omitempty"`
	// OnFailure is what becomes of a node on which an action has failed. Empty: nobody has said.
	OnFailure OnFailure `json:"onFailure,omitempty"`
	// Soak is how long a node that was disturbed is watched before its update has succeeded, in nanoseconds where it is written as
	// JSON. Nil: nobody has said, and it is not watched.
	Soak *time.Duration `json:"soak,omitempty"`
	// ConfirmWithin is how long a node that has changed the way in waits for a login of refit's, before it puts everything back. 0: nobody
	// has said, and it is DefaultConfirmWithin.
	ConfirmWithin time.Duration `json:"confirmWithin,omitempty"`
	// Probes are what policies ask a node beside what is built in, in an order that depends on nothing but them.
	Probes []Probe `json:"probes,omitempty"`
}

// How long a node may wait for a login. Within less, refit may not get there: it connects, proves who it is, and asks.
const (
	DefaultConfirmWithin = 2 * time.Minute
	MinConfirmWithin     = 30 * time.Second
	MaxConfirmWithin     = time.Hour
)

// BuiltinRules returns the rules that hold where an operator has said nothing else.
func BuiltinRules() Rules {
	return Rules{
		Files: Builtin(),
		Domains: map[Domain][]Action{
			SSHKeys:           {{Type: None}},
			Users:             {{Type: None}},
			NTP:               {{Type: Restart, Unit: TimeSyncUnit}},
			KubeletArguments:  {{Type: Restart, Unit: "kubelet.service"}},
			ControlPlane:      {{Type: StaticPodRefresh}},
			Taints:            {{Type: None}},
			KubernetesVersion: {{Type: Drain}},
		},
	}
}

// Actions returns what a change of the file p takes, or an error that says why it can't be done in place. A file by which network interfaces
// get their names has the node reboot, unless the policy is unsafe: what it does is not seen before.
func (r Rules) Actions(p string) ([]Action, error) {
	rule, err := r.file(p)
	if err != nil {
		return nil, &RuleError{err}
	}
	actions, err := rule.takes(p)
	if err == nil && linkFile.MatchString(p) && !rule.Unsafe {
		actions = rebooted(actions)
	}
	return actions, err
}

// RuleError says why rules do not let a change be made in place: none is about it, or one says so.
type RuleError struct{ err error }

func (e *RuleError) Error() string { return e.err.Error() }

func (e *RuleError) Unwrap() error { return e.err }

// Domain returns what a change within a domain takes, or an error that says why it can't be done in place.
func (r Rules) Domain(d Domain) ([]Action, error) {
	actions, ok := r.Domains[d]
	if !ok {
		return nil, &RuleError{fmt.Errorf("no rule says what a change of %s takes on a node", d)}
	}
	return Rule{Path: string(d), Actions: actions, From: r.DomainsFrom[d]}.takes(string(d))
}

// Check returns an error if an action of any rule names a unit that no action may name, whether or not something follows the rule, if
// ConfirmWithin is out of bounds, or if a probe can't be asked.
func (r Rules) Check() error {
	var lists [][]Action
	for _, f := range r.Files {
		lists = append(lists, f.Actions)
	}
	for _, u := range r.Units {
		lists = append(lists, u.Actions)
	}
	for _, a := range slices.Concat(append(lists, slices.Collect(maps.Values(r.Domains))...)...) {
		if err := CheckUnit(a.Type, a.Unit); err != nil {
			return err
		}
	}
	if d := r.ConfirmWithin; d != 0 && (d < MinConfirmWithin || d > MaxConfirmWithin) {
		return fmt.Errorf("confirmWithin is %s, and has to be from %s to %s", d, MinConfirmWithin, MaxConfirmWithin)
	}
	return checkProbes(r.Probes)
}

// Disturbs reports whether actions do anything on a node. What changes may do without them, node.Plan knows.
func Disturbs(actions []Action) bool {
	return slices.ContainsFunc(actions, func(a Action) bool { return a.Type != None })
}

// Interrupts reports whether actions restart something, or empty the node.
func Interrupts(actions []Action) bool {
	return slices.ContainsFunc(actions, func(a Action) bool {
		return slices.Contains([]ActionType{Restart, NetworkReload, StaticPodRefresh, Drain, Reboot}, a.Type)
	})
}

// file returns the rule that a change of the file p follows.
func (r Rules) file(p string) (Rule, error) {
	if err := ValidPath(p); err != nil {
		return Rule{}, err
	}
	rule, ok := r.Files.match(p)
	if name, isUnit := unitOf(p); isUnit {
		rule, ok = r.unitFile(p, name, rule, ok)
	}
	if !ok {
		return Rule{}, fmt.Errorf("no rule says what a change of %s takes on a node; "+
			"say it in a NodeDisruptionPolicy, or name its directory with --allow-paths if it takes nothing", p)
	}
	return rule, nil
}

// unitFile returns the rule that a change of a unit's file, or of a drop-in, follows. rule is that of Files, if there is one.
func (r Rules) unitFile(p, name string, rule Rule, found bool) (Rule, bool) {
	i := slices.IndexFunc(r.Units, func(u UnitRule) bool { return u.Name == name })
	for j := i + 1; i >= 0 && j < len(r.Units); j++ {
		if r.Units[j].Name == name {
			i = j
		}
	}
	named := found && rule.From != "" && within(rule.Path, systemdUnits+"/"+name, systemdUnits+"/"+name+".d")
	if i >= 0 && !named {
		u := r.Units[i]
		return Rule{Path: p, Actions: Merge([]Action{{Type: DaemonReload}}, u.Actions), From: u.From}, true
	}
	// What a policy has systemd do with a unit, it does with the new files. To say None is to say that it need not read them.
	if found && rule.From != "" && Worst(types(rule.Actions)...) != None {
		rule.Actions = Merge([]Action{{Type: DaemonReload}}, rule.Actions)
	}
	return rule, found
}

// takes returns the actions of the rule for a change of what, or an error that says why it is not made in place.
func (r Rule) takes(what string) ([]Action, error) {
	actions, err := r.actionsFor(what)
	if err != nil {
		return nil, &RuleError{err}
	}
	return actions, nil
}

func (r Rule) actionsFor(what string) ([]Action, error) {
	if err := r.patched(what); err != nil {
		return nil, err
	}
	actions := slices.Clone(r.Actions)
	if len(actions) == 0 {
		return nil, fmt.Errorf("rule for %s: it has no actions; a change that takes nothing takes %s", r.Path, None)
	}
	for i, a := range actions {
		if a.Unit == UnitOfPath {
			unit, ok := unitOf(what)
			if !ok {
				return nil, fmt.Errorf("%s is neither a unit nor a drop-in of one", what)
			}
			actions[i].Unit = unit
		}
		if err := actions[i].Validate(); err != nil {
			return nil, fmt.Errorf("rule for %s: %w", r.Path, err)
		}
		if a.Type == Replace {
			return nil, fmt.Errorf("a change of %s is not made in place: %s says %s", what, r.origin(), Replace)
		}
	}
	return actions, nil
}

// origin names the rule for people.
func (r Rule) origin() string {
	if r.From == "" {
		return "the rule for it"
	}
	return "NodeDisruptionPolicy " + r.From
}

// types returns the types of actions.
func types(actions []Action) []ActionType {
	out := make([]ActionType, len(actions))
	for i, a := range actions {
		out[i] = a.Type
	}
	return out
}
