package guard

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/explain"
)

// instead finds out whether a part of a topology goes and another one of its class comes: its machines are replaced by those of the other.
func (e *edit) instead(p *part) {
	name := p.owner.Topology()
	if p.owner.Verdict != explain.Deleted || name == "" {
		return
	}
	was, will := classesOf(e.old), classesOf(e.new)
	for other, class := range will {
		if _, there := was[other]; !there && class == was[name] {
			p.instead = true
			p.owner.Adds = append(p.owner.Adds, "deletes them with "+name+", and makes those of "+other+", which is of the same class")
			return
		}
	}
}

// classesOf returns the classes of the MachineDeployments of a topology by their names.
func classesOf(cluster *unstructured.Unstructured) map[string]string {
	list, _ := fieldOf(cluster, "spec", "topology", "workers", "machineDeployments").([]any)
	out := map[string]string{}
	for _, one := range list {
		fields, _ := one.(map[string]any)
		name, _ := fields["name"].(string)
		out[name], _ = fields["class"].(string)
	}
	return out
}

// leaveYounger leaves out the machines of a control plane that were made since rollout.after, where that is all for which they would be replaced. Of a
// MachineDeployment it is the MachineSet's age that counts.
func (e *edit) leaveYounger(p *part) {
	if e.new.GetKind() != "KubeadmControlPlane" || !slices.Equal(p.owner.Because, []string{"spec.rollout.after"}) {
		return
	}
	text, _ := fieldOf(e.new, "spec", "rollout", "after").(string)
	after, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return
	}
	p.machines = slices.DeleteFunc(slices.Clone(p.machines), func(m *clusterv1.Machine) bool {
		return !m.CreationTimestamp.IsZero() && !m.CreationTimestamp.Time.Before(after)
	})
}
