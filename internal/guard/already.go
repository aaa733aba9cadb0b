package guard

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"

	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/explain"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/rollout"
)

// leaveOut leaves out the machines that have already what an edit brings: who takes back what was stored, and not made, replaces nothing. Of a part of a
// topology that is not known of machines that are not up to date. What machines have says no condition, since it stands still while the owner is paused. It
// returns a part of its own for those that can't be told of; nil if there are none.
func (g *Guard) leaveOut(ctx context.Context, e *edit, p *part) (*part, error) {
	var left, lost []*clusterv1.Machine
	var because error
	for _, m := range p.machines {
		lacks, err := g.lacks(ctx, e, p.owner, m)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && stale(m):
			lost, because = append(lost, m), fmt.Errorf("find out what Machine %s/%s has: %w", m.Namespace, m.Name, err)
		case err != nil || lacks:
			left = append(left, m)
		}
	}
	if e.new.GetKind() == "Cluster" && slices.ContainsFunc(left, stale) && !onlyVersion(p.owner) {
		p.unsure = true
	}
	p.machines = left
	if len(lost) == 0 {
		return nil, nil
	}
	return &part{owner: untold(p.owner, because), machines: lost}, nil
}

// untold returns an owner of which it can't be told what becomes of some of its machines.
func untold(of *explain.Owner, why error) *explain.Owner {
	return &explain.Owner{Kind: of.Kind, Namespace: of.Namespace, Name: of.Name, Part: of.Part, Cluster: of.Cluster, Verdict: explain.Unknown, Because: of.Because, Notes: []string{unread(why)}}
}

// uncovered are the fields of an object for which machines are replaced.
func uncovered(o *explain.Owner, object fieldset.Object) (out []handlers.FieldExplanation) {
	for _, f := range o.Fields {
		if f.Object == object && !f.Covered {
			out = append(out, f)
		}
	}
	return out
}

// onlyVersion reports whether machines are replaced for their version and nothing else.
func onlyVersion(o *explain.Owner) bool {
	return len(uncovered(o, fieldset.InfrastructureMachine))+len(uncovered(o, fieldset.BootstrapConfig)) == 0
}

// lacks reports whether a machine has not yet what an edit brings of the fields for which it would be replaced; of a topology, by its version only.
func (g *Guard) lacks(ctx context.Context, e *edit, o *explain.Owner, m *clusterv1.Machine) (bool, error) {
	version, _, _ := unstructured.NestedString(e.new.Object, "spec", "version")
	if e.new.GetKind() == "Cluster" {
		version, _, _ = unstructured.NestedString(e.new.Object, "spec", "topology", "version")
		return !onlyVersion(o) || m.Spec.Version != version, nil
	}
	if len(uncovered(o, fieldset.Machine)) > 0 && m.Spec.Version != version {
		return true, nil
	}
	if len(uncovered(o, fieldset.InfrastructureMachine)) > 0 {
		if lacks, err := g.lacksTemplate(ctx, e, m); err != nil || lacks {
			return lacks, err
		}
	}
	if fields := uncovered(o, fieldset.BootstrapConfig); len(fields) > 0 {
		return g.lacksConfig(ctx, e, m, fields)
	}
	return false, nil
}

// lacksTemplate reports whether a machine of a control plane is made of another template than it is to be.
func (g *Guard) lacksTemplate(ctx context.Context, e *edit, m *clusterv1.Machine) (bool, error) {
	infra, err := external.GetObjectFromContractVersionedRef(ctx, g.Live, m.Spec.InfrastructureRef, m.Namespace)
	if err != nil {
		return false, err
	}
	wanted, _, _ := unstructured.NestedString(e.new.Object, "spec", "machineTemplate", "spec", "infrastructureRef", "name")
	return infra.GetAnnotations()[clusterv1.TemplateClonedFromNameAnnotation] != wanted, nil
}

// lacksConfig reports whether the KubeadmConfig of a machine of a control plane differs in fields from what it is to be.
func (g *Guard) lacksConfig(ctx context.Context, e *edit, m *clusterv1.Machine, fields []handlers.FieldExplanation) (bool, error) {
	wanted, err := rollout.ConfigOf(e.new, m.Spec.ClusterName, m.Name)
	if err != nil {
		return false, err
	}
	config := &unstructured.Unstructured{}
	config.SetAPIVersion(wanted.APIVersion)
	config.SetKind(wanted.Kind)
	if err := g.Live.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.Bootstrap.ConfigRef.Name}, config); err != nil {
		return false, err
	}
	now := wanted
	now.Value = config.Object["spec"]
	change, differs, err := rollout.CompareConfigs(ctx, now, wanted)
	if err != nil || !differs {
		return false, err
	}
	return slices.ContainsFunc(fieldset.Change{change}.Fields(), func(f fieldset.Field) bool {
		return slices.ContainsFunc(fields, func(of handlers.FieldExplanation) bool {
			return strings.HasPrefix(of.Path, f.String()) || strings.HasPrefix(f.String(), of.Path) // one may be of a whole item, and the other of what is in it
		})
	}), nil
}
