package kubeadm

import (
	"regexp"
	"strings"

	"github.com/capi-refit/refit/internal/node"
)

// ArgName is the form of an argument's name. The programs take "_" for "-" as well; written one way only, no argument has
// two names.
var ArgName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// Why arguments of the kubelet are not refit's to change.
const (
	becauseKubeadms = "kubeadm sets it, out of other fields or in the kubelet's systemd drop-in"
	becauseIdentity = "it says which Node this is, and a running Node keeps that"
	becauseAddress  = "others reach the node where it says, and what runs there keeps the former address"
	becauseCgroups  = "the containers that run are where the former value has put them"
	becauseStays    = "the kubelet would not stay, or not be the node's"
	becauseProbe    = "refit asks the kubelet there whether it is well"
)

// owned are the kubelet's arguments that are not changed on a running node.
var owned = map[string]string{
	"bootstrap-kubeconfig": becauseKubeadms, "cert-dir": becauseKubeadms, "config": becauseKubeadms, "config-dir": becauseKubeadms,
	"container-runtime-endpoint": becauseKubeadms, "kubeconfig": becauseKubeadms, "pod-manifest-path": becauseKubeadms,
	"hostname-override": becauseIdentity, "provider-id": becauseIdentity, "cloud-provider": becauseIdentity, "register-node": becauseIdentity,
	"address": becauseAddress, "node-ip": becauseAddress, "port": becauseAddress,
	"cgroup-driver": becauseCgroups, "cgroup-root": becauseCgroups, "cgroups-per-qos": becauseCgroups, "root-dir": becauseCgroups,
	"exit-on-lock-contention": becauseStays, "lock-file": becauseStays, "runonce": becauseStays,
	"healthz-bind-address": becauseProbe, "healthz-port": becauseProbe,
}

// Problem returns why an argument can't be given to the kubelet of a running node, or nothing. It does not contain the value.
func Problem(a node.Arg) string {
	if why, ok := owned[a.Name]; ok {
		return "the kubelet's argument " + a.Name + " is not changed on a running node: " + why
	}
	switch {
	case !ArgName.MatchString(a.Name):
		return "the name of an argument is written in small letters, digits and single dashes, without dashes before it"
	case templated(a.Value):
		return "the value of " + a.Name + " is an expression that is put in when a new machine starts; what it comes to on a running one is not known"
	case strings.ContainsFunc(a.Value, unfit):
		return "the value of " + a.Name + " has white space, a quote, a backslash or another character that kubeadm-flags.env does not carry to the kubelet"
	default:
		return ""
	}
}

// templated reports whether cloud-init's Jinja, or a command that fills in variables, makes something else of a value.
func templated(value string) bool {
	for _, mark := range []string{"{{", "{%", "{#", "$"} {
		if strings.Contains(value, mark) {
			return true
		}
	}
	return false
}

// unfit reports whether a character does not get through systemd's EnvironmentFile and the splitting of the variable into
// words.
func unfit(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"'`\\", r) }

// placing are the arguments that say where on the hardware containers run. Those that run stay where the former value has put
// them. The node may ask for a drain for others as well, when its managers hand out CPUs or memory to single containers.
var placing = map[string]bool{
	"cpu-manager-policy": true, "cpu-manager-policy-options": true, "memory-manager-policy": true, "reserved-memory": true,
	"topology-manager-policy": true, "topology-manager-policy-options": true, "topology-manager-scope": true,
}

// NeedsDrain reports whether the pods must leave the node before an argument of the kubelet is changed.
func NeedsDrain(arg string) bool { return placing[arg] }
