package kubeadm

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

var errTemplated = errors.New("it has an expression that is put in when a new machine starts; what it comes to on a running one is not known")

// ParseLabels reads the value of node-labels as the kubelet does. The error does not contain the value.
func ParseLabels(value string) (map[string]string, error) {
	if templated(value) {
		return nil, errTemplated
	}
	labels := map[string]string{}
	for entry := range strings.SplitSeq(value, ",") {
		if entry == "" {
			continue
		}
		key, text, _ := strings.Cut(entry, "=")
		labels[strings.TrimSpace(key)] = strings.TrimSpace(text)
	}
	return labels, nil
}

// ParseTaints reads the value of register-with-taints as the kubelet does: "key=value:effect,key:effect". The error does not
// contain the value. What is parsed may still be no valid taint.
func ParseTaints(value string) ([]corev1.Taint, error) {
	if templated(value) {
		return nil, errTemplated
	}
	var taints []corev1.Taint
	for entry := range strings.SplitSeq(value, ",") {
		if entry == "" {
			continue
		}
		name, effect, _ := strings.Cut(entry, ":")
		key, text, _ := strings.Cut(name, "=")
		taints = append(taints, corev1.Taint{Key: key, Value: text, Effect: corev1.TaintEffect(effect)})
	}
	return taints, nil
}

// kubeletsLabels are the labels that a kubelet sets again whenever it starts, out of its own command line and what the cloud
// says (updateDefaultLabels in pkg/kubelet).
var kubeletsLabels = map[string]bool{
	corev1.LabelHostname: true, corev1.LabelTopologyZone: true, corev1.LabelTopologyRegion: true,
	corev1.LabelFailureDomainBetaZone: true, corev1.LabelFailureDomainBetaRegion: true,
	corev1.LabelInstanceType: true, corev1.LabelInstanceTypeStable: true,
	corev1.LabelOSStable: true, corev1.LabelArchStable: true, corev1.LabelWindowsBuild: true,
	"beta.kubernetes.io/os": true, "beta.kubernetes.io/arch": true,
}

// LabelProblem returns why a label can't be brought to a running Node, or nothing. A kubelet may set labels of Kubernetes' own
// domains only below kubelet.kubernetes.io and node.kubernetes.io, and would not start on a new machine with others.
func LabelProblem(key, value string) string {
	domain, _, qualified := strings.Cut(key, "/")
	switch {
	case len(validation.IsQualifiedName(key)) > 0:
		return "a label's key is not of the form that Kubernetes takes"
	case len(validation.IsValidLabelValue(value)) > 0:
		return fmt.Sprintf("the value of label %s is not of the form that Kubernetes takes", key)
	case kubeletsLabels[key]:
		return fmt.Sprintf("the kubelet sets label %s again whenever it starts, by what it was told when the machine was made", key)
	case qualified && (below(domain, "kubernetes.io") || below(domain, "k8s.io")) &&
		!below(domain, "kubelet.kubernetes.io") && !below(domain, "node.kubernetes.io"):
		return fmt.Sprintf("a kubelet may not set label %s, and does not start with it on a new machine", key)
	default:
		return ""
	}
}

// below reports whether a domain is parent or one below it.
func below(domain, parent string) bool {
	return domain == parent || strings.HasSuffix(domain, "."+parent)
}

// startup are the taints that keep pods off a Node until a controller has seen it and takes them away. They mean nothing on
// a running one. The second is Cluster API's own, which it adds to the joinConfiguration of workers.
var startup = []corev1.Taint{
	{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: corev1.TaintEffectNoSchedule},
	{Key: "node.cluster.x-k8s.io/uninitialized", Effect: corev1.TaintEffectNoSchedule},
}

// Startup reports whether a taint counts until the Node is ready for the first time only.
func Startup(t corev1.Taint) bool {
	for _, s := range startup {
		if t.MatchTaint(&s) {
			return true
		}
	}
	return false
}

// controllers are the domains of the taints by which Kubernetes and Cluster API say how a Node is.
var controllers = []string{"node.kubernetes.io", "node.cloudprovider.kubernetes.io", "node.cluster.x-k8s.io"}

// Foreign reports whether a taint is one that controllers add and take away.
func Foreign(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	for _, c := range controllers {
		if domain == c {
			return true
		}
	}
	return false
}

// TaintProblem returns why a taint can't be brought to a running Node, or nothing.
func TaintProblem(t corev1.Taint) string {
	switch {
	case len(validation.IsQualifiedName(t.Key)) > 0:
		return "a taint's key is not of the form that Kubernetes takes"
	case len(validation.IsValidLabelValue(t.Value)) > 0:
		return fmt.Sprintf("the value of taint %s is not of the form that Kubernetes takes", t.Key)
	case t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectPreferNoSchedule && t.Effect != corev1.TaintEffectNoExecute:
		return fmt.Sprintf("the effect of taint %s is none that Kubernetes knows", t.Key)
	case Foreign(t.Key) && !Startup(t):
		return fmt.Sprintf("taint %s is added and taken away by controllers, by how the Node is", t.Key)
	default:
		return ""
	}
}
