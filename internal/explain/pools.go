package explain

import (
	"fmt"
	"reflect"

	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// poolPart begins the part of a topology that is a MachinePool; its name in the topology follows.
const poolPart = "MachinePool "

// pools says of which MachinePools of a topology something differs, or that go: what becomes of their machines is their provider's to say.
func (s sides) pools(key Key, was, will *blueprint) []*Owner {
	if was == nil {
		return nil
	}
	var owners []*Owner
	for i := range was.object.Spec.Topology.Workers.MachinePools {
		before := &was.object.Spec.Topology.Workers.MachinePools[i]
		after := will.pool(before.Name)
		if after != nil && !s.poolDiffers(was, will, before, after) {
			continue
		}
		o := newOwner(key)
		o.Part, o.Cluster, o.Machines.Total = poolPart+before.Name, key.Name, int(ptr.Deref(before.Replicas, 1))
		field := poolField(before.Name)
		if after == nil {
			o.Because = append(o.Because, field)
			o.unknown("it is not there any more: where it is deleted, its machines are")
		} else {
			o.Because = append(o.Because, field+", or of what it is made")
			o.unknown("refit can't tell what becomes of the machines of a MachinePool: its provider may replace them")
		}
		owners = append(owners, o)
	}
	return owners
}

func poolField(name string) string {
	return fmt.Sprintf("spec.topology.workers.machinePools[name=%q]", name)
}

// pool returns a MachinePool of a topology; nil if it has it not.
func (b *blueprint) pool(name string) *clusterv1.MachinePoolTopology {
	if b == nil {
		return nil
	}
	for i := range b.object.Spec.Topology.Workers.MachinePools {
		if p := &b.object.Spec.Topology.Workers.MachinePools[i]; p.Name == name {
			return p
		}
	}
	return nil
}

// poolDiffers reports whether a MachinePool differs, or something of which it may be made.
func (s sides) poolDiffers(was, will *blueprint, before, after *clusterv1.MachinePoolTopology) bool {
	if !reflect.DeepEqual(before, after) || was.object.Spec.Topology.Version != will.object.Spec.Topology.Version || was.of != will.of {
		return true
	}
	if (was.class == nil) != (will.class == nil) || len(unapplied(was.ofPool(before), will.ofPool(after))) > 0 {
		return true
	}
	if was.class == nil {
		return false
	}
	return !reflect.DeepEqual(was.class.Spec.Workers.MachinePools, will.class.Spec.Workers.MachinePools) || s.poolTemplatesDiffer(will)
}

// ofPool is a MachinePool as far as the patches of a ClusterClass go by it.
func (b *blueprint) ofPool(t *clusterv1.MachinePoolTopology) *part {
	return &part{blueprint: b, field: poolField(t.Name), class: t.Class, variables: t.Variables.Overrides}
}

// poolTemplatesDiffer reports whether a template differs, as far as it is given, that a ClusterClass names for MachinePools.
func (s sides) poolTemplatesDiffer(of *blueprint) bool {
	for _, class := range of.class.Spec.Workers.MachinePools {
		for _, ref := range []clusterv1.ClusterClassTemplateReference{class.Bootstrap.TemplateRef, class.Infrastructure.TemplateRef} {
			key := of.template(ref)
			if key == nil {
				continue
			}
			a, b := s.from.Get(*key), s.to.Get(*key)
			if (a == nil) != (b == nil) || a != nil && !reflect.DeepEqual(a.Object["spec"], b.Object["spec"]) {
				return true
			}
		}
	}
	return false
}
