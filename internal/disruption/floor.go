package disruption

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// KubeadmPatches is where the patches of kubeadm usually are, by which it changes what it writes on a node.
const KubeadmPatches = "/etc/kubernetes/patches"

// kubeletPatch is how the names of those patches begin that change the kubelet's configuration.
const kubeletPatch = "kubeletconfiguration"

// IsKubeletPatch reports whether kubeadm takes a file of a directory of patches for one of the kubelet's configuration. Names are
// TARGET[SUFFIX][+TYPE].EXTENSION.
func IsKubeletPatch(dir, file string) bool {
	return path.Dir(file) == path.Clean(dir) && strings.HasPrefix(path.Base(file), kubeletPatch) &&
		slices.Contains([]string{".json", ".yaml"}, path.Ext(file))
}

// patched returns an error for a patch of which the built-in rule does not bring a change into effect: one of a static pod is read again
// only when kubeadm makes its manifest for another reason.
func (r Rule) patched(what string) error {
	if r.From != "" || r.Path != KubeadmPatches || !Has(r.Actions, Restart) || IsKubeletPatch(KubeadmPatches, what) {
		return nil
	}
	return fmt.Errorf("%s is not a patch of %s: kubeadm reads those of static pods only when it makes their manifests, which a change of the file "+
		"does not have it do; name another patches.directory in the specs with the changed patches in it", what, kubeletPatch)
}

// sshUnits are the names of the SSH server's unit, of which a node has one.
var sshUnits = []string{"ssh.service", "sshd.service"}

// Floor returns an error if the actions that a policy has for the file p leave out what the built-in rule for it has, and what brings a
// change into effect or tests it. That is all but Drain: whether pods leave first is the policy's to say. Replace stands for all others,
// and Reboot for those that a boot does, too.
func Floor(p string, actions []Action) error {
	missing, whose := below(p, actions)
	return unlessUnsafe(missing, whose)
}

// below returns what actions leave out of the built-in rule for the file p, in words, and that rule's path.
func below(p string, actions []Action) (missing []string, whose string) {
	rule, ok := Builtin().match(p)
	if !ok || within(rule.Path, systemdUnits) && !restartable(p) {
		return nil, ""
	}
	return lacks(actions, rule.Actions), rule.Path
}

// restartable reports whether the built-in rule can be about a path below systemdUnits: there are units that are not restarted.
func restartable(p string) bool {
	if p == systemdUnits {
		return true
	}
	name := strings.TrimSuffix(strings.SplitN(strings.TrimPrefix(p, systemdUnits+"/"), "/", 2)[0], ".d")
	return ValidUnit(name) && CheckUnit(Restart, name) == nil
}

// FloorOfUnit is Floor for the unit of a policy's entry.
func FloorOfUnit(name string, actions []Action) error { return Floor(systemdUnits+"/"+name, actions) }

// FloorOfDomain is Floor for what is no file. The control plane is waited for whatever the actions are, and needs none.
func FloorOfDomain(d Domain, actions []Action) error {
	if d == ControlPlane {
		return nil
	}
	return unlessUnsafe(lacks(actions, BuiltinRules().Domains[d]), string(d))
}

func unlessUnsafe(missing []string, whose string) error {
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("it leaves out %s, which the built-in rule for %s has, so that a change would have no effect or would not be tested; "+
		"add that, or say unsafe: true if it is meant", strings.Join(missing, ", "), whose)
}

// lacks returns which actions of a floor are left out, in words. Of several units, of which a node has one, one is enough, and it is the
// policy's whether it is reloaded or restarted.
func lacks(actions, floor []Action) (missing []string) {
	if Has(actions, Replace) {
		return nil
	}
	boots := Has(actions, Reboot)
	var units []Action
	for _, f := range floor {
		switch f.Type {
		case None, Drain, DaemonReload: // systemd reads changed units again whatever a policy says, but for None
		case Reload, Restart:
			units = append(units, f)
		default:
			if !includes(actions, f.Type) {
				missing = append(missing, string(f.Type))
			}
		}
	}
	if len(units) > 0 && !boots && !actOn(actions, units) {
		missing = append(missing, strings.Replace(units[0].String(), UnitOfPath, "the unit", 1))
	}
	return missing
}

// includes reports whether actions do what one of a type does.
func includes(actions []Action, t ActionType) bool {
	return Has(actions, t) || Has(actions, Reboot) && !notByBoot(t)
}

// notByBoot reports whether a boot does not do what an action does: it starts with what the action makes.
func notByBoot(t ActionType) bool {
	return t == RebuildBootloader || t == RebuildInitramfs || t == TrustStoreUpdate
}

func actOn(actions, units []Action) bool {
	return slices.ContainsFunc(actions, func(a Action) bool { return actsOn(a, units) })
}

// actsOn reports whether an action reloads or restarts one of the units.
func actsOn(a Action, units []Action) bool {
	if a.Type != Reload && a.Type != Restart {
		return false
	}
	return slices.ContainsFunc(units, func(u Action) bool {
		whichever := u.Unit == UnitOfPath || u.Unit == TimeSyncUnit // which the policy knows best
		return whichever || u.Unit == a.Unit || slices.Contains(sshUnits, u.Unit) && slices.Contains(sshUnits, a.Unit)
	})
}
