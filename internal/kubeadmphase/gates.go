package kubeadmphase

import (
	"fmt"

	"github.com/capi-refit/refit/internal/skew"
)

// newest is the newest minor version of kubeadm of which the tables speak.
const newest = 36

// gate is a feature gate of kubeadm's.
type gate struct {
	// since is the first minor version that knows it, gone the first that does not; 0: the newest still does.
	since, gone uint
	// on is the minor version since which it is on unless it is said otherwise; 0: it is off.
	on uint
	// phase reports whether the phase control-plane goes by it, upgrade whether the other phases of kubeadm upgrade node do.
	phase, upgrade bool
	// acts is what it acts on, for people.
	acts string
}

var gates = map[string]gate{
	"ControlPlaneKubeletLocalMode":     {since: 31, gone: 36, on: 33, upgrade: true, acts: "the server in the kubelet's kubeconfig"},
	"EtcdLearnerMode":                  {since: 27, gone: 33, on: 29, acts: "how etcd's member joins"},
	"NodeLocalCRISocket":               {since: 32, on: 34, upgrade: true, acts: "where the kubelet is told of the container runtime"},
	"PublicKeysECDSA":                  {since: 19, acts: "the keys of certificates when they are made"},
	"RootlessControlPlane":             {since: 22, phase: true, acts: "the static pods"},
	"UpgradeAddonsBeforeControlPlane":  {since: 28, gone: 31, acts: "the order in which addons are upgraded"},
	"WaitForAllControlPlaneComponents": {since: 30, gone: 35, on: 33, acts: "what kubeadm waits for when it makes or joins a machine"},
}

// RootlessControlPlane is the feature gate that changes all manifests of a control plane, etcd's too.
const RootlessControlPlane = "RootlessControlPlane"

// Gate returns why kubeadm would not do on a node what the change of a feature gate wants, or nil. version is the Kubernetes that the node
// runs in the end, empty if that is not known, and whole reports whether all of kubeadm upgrade node is run, since the version changes. was
// and want are nil where the gate is not named. The error is for people.
func Gate(version, name string, was, want *bool, whole bool) error {
	g, known := gates[name]
	if version == "" {
		return g.anyVersion(name)
	}
	v, err := skew.Parse(version)
	switch {
	case err != nil:
		return err
	case v.Major() != 1 || v.Minor() > newest:
		return fmt.Errorf("this version of refit does not know what kubeadm of %s does about the feature gate %s", version, name)
	case want != nil && !g.known(v.Minor()):
		return fmt.Errorf("kubeadm of %s has no feature gate %s, and takes no configuration that names it", version, name)
	case !known, g.made(v.Minor(), was, want, whole): // what no kubeadm has heard of can only go
		return nil
	default:
		return fmt.Errorf("the feature gate %s acts on %s, which kubeadm of %s does not do again when it makes the static pods again; a new machine has it",
			name, g.acts, version)
	}
}

// anyVersion returns nil if it does not matter which version of kubeadm acts on the gate.
func (g gate) anyVersion(name string) error {
	if g.phase {
		return nil
	}
	return fmt.Errorf("which version of kubeadm would act on the feature gate %s is not known", name)
}

// made reports whether kubeadm makes a change, or there is none to make.
func (g gate) made(minor uint, was, want *bool, whole bool) bool {
	return g.phase || g.upgrade && whole || g.effect(minor, was) == g.effect(minor, want)
}

func (g gate) known(minor uint) bool {
	return g.since != 0 && minor >= g.since && (g.gone == 0 || minor < g.gone)
}

// effect reports whether the gate is on: as it is said, or as kubeadm has it. One that is gone stays as it was at last.
func (g gate) effect(minor uint, said *bool) bool {
	if said != nil {
		return *said
	}
	return g.on != 0 && minor >= g.on
}
