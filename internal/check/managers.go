package check

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// gates are the feature gates that Cluster API's managers take.
var gates = map[string][]string{
	"cluster-api":           {"RuntimeSDK", "InPlaceUpdates"},
	"control-plane-kubeadm": {"InPlaceUpdates"},
}

// managers looks whether Cluster API's managers have the feature gates.
func (c *Checker) managers(ctx context.Context) []Finding {
	const check = "feature-gates"
	var all []Finding
	for _, name := range []string{"cluster-api", "control-plane-kubeadm"} {
		var list appsv1.DeploymentList
		if err := c.Client.List(ctx, &list, client.MatchingLabels{provider: name}); err != nil {
			all = append(all, unknown(check, "", err))
			continue
		}
		if len(list.Items) == 0 {
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

// down tells of a manager of Cluster API's that does not run. What it has discovered is in no object: one that can't discover an extension exits.
func down(d *appsv1.Deployment) []Finding {
	if d.Status.AvailableReplicas > 0 || ptr.Deref(d.Spec.Replicas, 1) == 0 {
		return nil
	}
	return []Finding{{Check: "managers", Level: Error, Object: nameOf("Deployment", d), Message: "none of its pods is available, so that it updates no machine",
		Do: "see its log: Cluster API's managers exit on start when they can't discover an extension, as while refit is away or its certificate is not signed by the caBundle"}}
}

func gatesOf(check string, d *appsv1.Deployment, wanted []string) Finding {
	set := map[string]string{}
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, arg := range append(slices.Clone(c.Command), c.Args...) {
			value, ok := strings.CutPrefix(strings.TrimPrefix(arg, "-"), "-feature-gates=")
			if !ok {
				continue
			}
			for gate := range strings.SplitSeq(value, ",") {
				name, on, _ := strings.Cut(strings.TrimSpace(gate), "=")
				set[name] = strings.ToLower(on)
			}
		}
	}
	var off []string
	for _, gate := range wanted {
		if set[gate] != "true" {
			off = append(off, gate)
		}
	}
	object := nameOf("Deployment", d)
	if len(off) == 0 {
		return good(check, object, "it has "+strings.Join(wanted, ", "))
	}
	return Finding{Check: check, Level: Error, Object: object, Message: "the feature gate " + strings.Join(off, ", ") + " is off, so that Cluster API does not ask",
		Do: "set EXP_RUNTIME_SDK=true and EXP_IN_PLACE_UPDATES=true for clusterctl, or --feature-gates of its container"}
}
