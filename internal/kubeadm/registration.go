// Package registration reads the nodeRegistration of kubeadm's configurations: what a kubelet is told on its command line,
// and with which labels and taints its Node is registered. What the specs say and what bootstrap data said are read alike, so
// that they can be compared.
package kubeadm

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/capi-refit/refit/internal/node"
)

// Arguments of the kubelet that count only when the Node is registered. On a running node the Node itself is changed instead.
const (
	NodeLabels         = "node-labels"
	RegisterWithTaints = "register-with-taints"
)

// The sections of kubeadm's configuration that have a nodeRegistration, as a KubeadmConfig names them.
const (
	Init = "initConfiguration"
	Join = "joinConfiguration"
)

// Registration is what a nodeRegistration comes to on a running node, as far as that is refit's to change. What Problem,
// LabelProblem or TaintProblem speak against is not in it, whether it is desired or was laid down by bootstrap: it stays as
// it is.
type Registration struct {
	// Args are the kubelet's arguments, but for those that are the Node's labels and taints. They are sorted by name, since
	// the order of different arguments means nothing.
	Args []node.Arg
	// Labels and Taints are the Node's.
	Labels map[string]string
	Taints []corev1.Taint
	// LabelsUnknown and TaintsUnknown say that bootstrap has put in values that are not known here, so that labels or taints
	// can't be compared.
	LabelsUnknown, TaintsUnknown bool
}

// Options are a nodeRegistration as it is written.
type Options struct {
	// Args are all of the kubelet's arguments.
	Args []node.Arg
	// Taints is nil when they are not set, which for a control plane means kubeadm's own.
	Taints *[]corev1.Taint
	// ControlPlane reports whether the machine is a control-plane machine.
	ControlPlane bool
}

// Section returns the section of a KubeadmConfig's spec that counts for its machine. The kubeadm control plane sends a
// joinConfiguration for every machine, also for the one that kubeadm init has made, and workers only join: so
// joinConfiguration counts where there is one, and initConfiguration where there is nothing else.
func Section(spec map[string]any) string {
	_, joins := spec[Join].(map[string]any)
	if _, inits := spec[Init].(map[string]any); inits && !joins {
		return Init
	}
	return Join
}

// ControlPlane reports whether a KubeadmConfig's spec is that of a control-plane machine: Cluster API has
// joinConfiguration.controlPlane in all of theirs, and refuses it for workers; and nobody else is made by kubeadm init.
func ControlPlane(spec map[string]any) bool {
	if Section(spec) == Init {
		return true
	}
	join, _ := spec[Join].(map[string]any)
	_, ok := join["controlPlane"].(map[string]any)
	return ok
}

// OfSpec reads the nodeRegistration that counts for a machine out of a KubeadmConfig's spec.
func OfSpec(spec map[string]any, controlPlane bool) Options {
	section := Section(spec)
	if !controlPlane {
		section = Join
	}
	configuration, _ := spec[section].(map[string]any)
	return OptionsOf(configuration, controlPlane)
}

// OptionsOf reads the nodeRegistration of an initConfiguration or joinConfiguration, or of an InitConfiguration or JoinConfiguration
// of kubeadm's own API.
func OptionsOf(configuration map[string]any, controlPlane bool) Options {
	registration, _ := configuration["nodeRegistration"].(map[string]any)
	o := Options{Args: args(registration["kubeletExtraArgs"]), ControlPlane: controlPlane}
	if list, ok := registration["taints"].([]any); ok {
		taints := []corev1.Taint{}
		for _, item := range list {
			taints = append(taints, Taint(item))
		}
		o.Taints = &taints
	}
	return o
}

// args reads arguments: a list, or a mapping as kubeadm's API had it up to v1beta3. Items of another form are left out.
func args(value any) []node.Arg {
	var out []node.Arg
	if m, ok := value.(map[string]any); ok {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			out = append(out, node.Arg{Name: name, Value: Text(m, name)})
		}
		return out
	}
	for _, m := range items(value) {
		if name := Text(m, "name"); name != "" {
			out = append(out, node.Arg{Name: name, Value: Text(m, "value")})
		}
	}
	return out
}

// Taint reads an item of a list of taints.
func Taint(item any) corev1.Taint {
	m, _ := item.(map[string]any)
	return corev1.Taint{Key: Text(m, "key"), Value: Text(m, "value"), Effect: corev1.TaintEffect(Text(m, "effect"))}
}

// Registration returns what the options come to on a running node.
func (o Options) Registration() Registration {
	r := Registration{Labels: map[string]string{}}
	for _, a := range o.Args {
		if a.Name != NodeLabels && a.Name != RegisterWithTaints && Problem(a) == "" {
			r.Args = append(r.Args, a)
		}
	}
	SortArgs(r.Args)
	labels, err := o.Labels()
	r.LabelsUnknown = err != nil
	for key, value := range labels {
		if LabelProblem(key, value) == "" {
			r.Labels[key] = value
		}
	}
	taints, err := o.AllTaints()
	r.TaintsUnknown = err != nil
	for _, t := range taints {
		if TaintProblem(t) == "" && !Startup(t) {
			r.Taints = append(r.Taints, t)
		}
	}
	return r
}

// Labels returns all labels that the arguments ask for, or an error when they can't be told.
func (o Options) Labels() (map[string]string, error) {
	labels := map[string]string{}
	for _, a := range o.Args {
		if a.Name != NodeLabels {
			continue
		}
		some, err := ParseLabels(a.Value)
		if err != nil {
			return nil, err
		}
		maps.Copy(labels, some) // the kubelet adds up what it is told more than once
	}
	return labels, nil
}

// AllTaints returns all taints that a new Node is registered with, each key and effect once, or an error when they can't be
// told. A worker is registered by its kubelet: there the argument stands in for the list, as kubeadm lets every extra
// argument stand in for its own. To a control-plane Node kubeadm adds the list later.
func (o Options) AllTaints() ([]corev1.Taint, error) {
	var fromArgs []corev1.Taint
	var told bool
	for _, a := range o.Args {
		if a.Name != RegisterWithTaints {
			continue
		}
		taints, err := ParseTaints(a.Value)
		if err != nil {
			return nil, err
		}
		fromArgs, told = taints, true // of several, the kubelet takes the last
	}
	var listed []corev1.Taint
	switch {
	case told && !o.ControlPlane:
	case o.Taints != nil:
		listed = *o.Taints
	case o.ControlPlane:
		listed = []corev1.Taint{{Key: ControlPlaneTaint, Effect: corev1.TaintEffectNoSchedule}}
	}
	type key struct { // by which taints are told apart
		key    string
		effect corev1.TaintEffect
	}
	seen := map[key]bool{}
	var all []corev1.Taint
	for _, t := range slices.Concat(listed, fromArgs) {
		if k := (key{t.Key, t.Effect}); !seen[k] {
			seen[k] = true
			all = append(all, t)
		}
	}
	return all, nil
}

// ControlPlaneTaint is what kubeadm gives to the Nodes of a control plane whose taints are not set.
const ControlPlaneTaint = "node-role.kubernetes.io/control-plane"

// SortArgs sorts arguments by name. Of one name they stay in their order, which means something to some programs.
func SortArgs(args []node.Arg) {
	slices.SortStableFunc(args, func(a, b node.Arg) int { return cmp.Compare(a.Name, b.Name) })
}
