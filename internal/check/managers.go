package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/feature"
)

const (
	kubeadmKind = "KubeadmControlPlane"
	setGates    = "set EXP_RUNTIME_SDK=true and EXP_IN_PLACE_UPDATES=true for clusterctl, or --feature-gates of its container"
)

// gates are the feature gates that Cluster API's managers take.
var gates = map[string][]string{
	"cluster-api":           {"RuntimeSDK", "InPlaceUpdates"},
	"control-plane-kubeadm": {"InPlaceUpdates"},
}

// managers looks whether Cluster API's managers run, with the feature gates.
func (c *Checker) managers(ctx context.Context) []Finding {
	const check = "feature-gates"
	var all []Finding
	for _, name := range []string{"cluster-api", "control-plane-kubeadm"} {
		var list appsv1.DeploymentList
		if err := c.Client.List(ctx, &list, client.MatchingLabels{provider: name}); err != nil {
			all = append(all, unknown(check, "", err))
			continue
		}
		if len(list.Items) == 0 && (name == "cluster-api" || c.kubeadm()) {
			all = append(all, Finding{Check: check, Level: Warning, Message: "there is no Deployment of provider " + name + " here",
				Do: "see to it that its manager has the feature gates " + strings.Join(gates[name], ", ")})
		}
		for i := range list.Items {
			all = append(all, gatesOf(check, &list.Items[i], gates[name]))
			all = append(all, down(&list.Items[i])...)
		}
	}
	return all
}

// kubeadm reports whether a Cluster has a KubeadmControlPlane, or may: others' control planes take no manager of kubeadm's provider.
func (c *Checker) kubeadm() bool {
	return len(c.clusters) == 0 || slices.ContainsFunc(c.clusters, func(o clusterv1.Cluster) bool { return o.Spec.ControlPlaneRef.Kind == kubeadmKind })
}

// down tells of a manager of Cluster API's that does not run. What it has discovered is in no object: one that can't discover an extension exits.
func down(d *appsv1.Deployment) []Finding {
	f := Finding{Check: "managers", Object: nameOf("Deployment", d)}
	switch wanted, there := ptr.Deref(d.Spec.Replicas, 1), d.Status.AvailableReplicas; {
	case wanted == 0:
		f.Level, f.Message, f.Do = Error, "it is scaled to 0, so that it updates no machine", "scale it up, unless the manager runs elsewhere"
	case there == 0:
		f.Level, f.Message = Error, "none of its pods is available, so that it updates no machine"
		f.Do = "see its log: Cluster API's managers exit on start when they can't discover an extension, as while refit is away or its certificate is not signed by the caBundle"
	case there < wanted:
		f.Level, f.Message, f.Do = Warning, fmt.Sprintf("%d of its %d pods are available", there, wanted), "kubectl describe pods -n "+d.Namespace
	default:
		return nil
	}
	return []Finding{f}
}

// gatesOf looks whether a manager has feature gates, as it would read them itself.
func gatesOf(check string, d *appsv1.Deployment, wanted []string) Finding {
	object := nameOf("Deployment", d)
	set := map[string]bool{}
	flag := cliflag.NewMapStringBool(&set)
	for _, value := range valuesOf(d, "feature-gates") {
		if err := flag.Set(value); err != nil {
			return Finding{Check: check, Level: Error, Object: object, Message: "its --feature-gates can't be read: " + err.Error(), Do: setGates}
		}
	}
	gate := featuregate.NewFeatureGate()
	known := feature.MutableGates.GetAll()
	err := gate.Add(known)
	maps.DeleteFunc(set, func(name string, _ bool) bool { // of another version
		_, ok := known[featuregate.Feature(name)]
		return !ok && name != "AllAlpha" && name != "AllBeta"
	})
	if err = errors.Join(err, gate.SetFromMap(set)); err != nil {
		return Finding{Check: check, Level: Error, Object: object, Message: "its --feature-gates can't be: " + err.Error(), Do: setGates}
	}
	off := slices.DeleteFunc(slices.Clone(wanted), func(name string) bool { return gate.Enabled(featuregate.Feature(name)) })
	if len(off) == 0 {
		return good(check, object, "it has "+strings.Join(wanted, ", "))
	}
	return Finding{Check: check, Level: Error, Object: object, Message: "the feature gate " + strings.Join(off, ", ") + " is off, so that Cluster API does not ask", Do: setGates}
}

// valuesOf returns what a flag of a Deployment's containers is set to, each time that it is there.
func valuesOf(d *appsv1.Deployment, flag string) (values []string) {
	for _, c := range d.Spec.Template.Spec.Containers {
		words := append(slices.Clone(c.Command), c.Args...)
		for i, word := range words {
			name, value, inOne := strings.Cut(word, "=")
			switch {
			case name != "--"+flag && name != "-"+flag:
			case inOne:
				values = append(values, value)
			case i+1 < len(words):
				values = append(values, words[i+1])
			}
		}
	}
	return values
}
