// Package selection says which Machines a policy is for.
package selection

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// Selector is a MachinesSelector that was read. It does not change, and may be shared.
type Selector struct {
	clusters, machines labels.Selector
	roles              []refitv1.Role
}

// Read reads a selector. What of it can't be read selects all, so that what is mistyped leaves no Machine without the policy;
// the error names it.
func Read(s refitv1.MachinesSelector) (Selector, error) {
	var errs []error
	read := func(field string, selector metav1.LabelSelector) labels.Selector {
		sel, err := metav1.LabelSelectorAsSelector(&selector)
		if err != nil {
			errs = append(errs, &schedule.FieldError{Field: field, Err: err})
			return labels.Everything()
		}
		return sel
	}
	out := Selector{roles: s.Roles}
	out.clusters, out.machines = read("selector.clusters", s.Clusters), read("selector.machines", s.Machines)
	for _, r := range s.Roles {
		if r != refitv1.ControlPlaneRole && r != refitv1.WorkerRole {
			out.roles = nil
			errs = append(errs, &schedule.FieldError{Field: "selector.roles", Err: fmt.Errorf("%q is not known", r)})
			break
		}
	}
	return out, errors.Join(errs...)
}

// RoleOf returns what a Machine with the labels is in its cluster.
func RoleOf(machineLabels map[string]string) refitv1.Role {
	if _, ok := machineLabels[clusterv1.MachineControlPlaneLabel]; ok {
		return refitv1.ControlPlaneRole
	}
	return refitv1.WorkerRole
}

// Cluster reports whether Machines of a Cluster with the labels can be selected.
func (s Selector) Cluster(of labels.Set) bool { return s.clusters.Matches(of) }

// AnyCluster reports whether Machines of every Cluster can be selected, whatever its labels.
func (s Selector) AnyCluster() bool { return s.clusters.Empty() }

// Machine reports whether a Machine is selected that has the role and the labels, in a Cluster that is.
func (s Selector) Machine(role refitv1.Role, of labels.Set) bool {
	return s.role(role) && s.machines.Matches(of)
}

func (s Selector) role(r refitv1.Role) bool {
	return len(s.roles) == 0 || slices.Contains(s.roles, r)
}

// CanMeet reports whether some Machine could be selected by both, as far as their roles and the values of labels tell.
func (s Selector) CanMeet(o Selector) bool {
	roles := slices.ContainsFunc([]refitv1.Role{refitv1.ControlPlaneRole, refitv1.WorkerRole}, func(r refitv1.Role) bool {
		return s.role(r) && o.role(r)
	})
	return roles && Compatible(s.clusters, o.clusters) && Compatible(s.machines, o.machines)
}

// Compatible reports whether no label has to have one value for the one selector and another for the other.
func Compatible(a, b labels.Selector) bool {
	values := func(s labels.Selector) map[string]sets.Set[string] {
		out := map[string]sets.Set[string]{}
		requirements, _ := s.Requirements()
		for _, r := range requirements {
			if op := r.Operator(); op == selection.In || op == selection.Equals || op == selection.DoubleEquals {
				out[r.Key()] = sets.New(r.ValuesUnsorted()...)
			}
		}
		return out
	}
	others := values(b)
	for key, allowed := range values(a) {
		if other, ok := others[key]; ok && allowed.Intersection(other).Len() == 0 {
			return false
		}
	}
	return true
}
