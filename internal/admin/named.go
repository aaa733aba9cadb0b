package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// findNamed finds out which Machines are meant by the names that were given, of Machines or their nodes. One of neither is an error.
func (s *Status) findNamed(ctx context.Context, updates []refitv1.MachineUpdate) error {
	s.named = map[types.NamespacedName]string{}
	if len(s.Machines) == 0 {
		return nil
	}
	var list clusterv1.MachineList
	if err := s.Client.List(ctx, &list, s.Scope.options()...); err != nil {
		return fmt.Errorf("list Machines in %s: %w", s.Scope, err)
	}
	var unknown []string
	for _, name := range s.Machines {
		found := false
		for i := range list.Items {
			if m := &list.Items[i]; m.Name == name || m.Status.NodeRef.Name == name {
				s.named[client.ObjectKeyFromObject(m)], found = name, true
			}
		}
		for i := range updates { // of a Machine that is gone
			if updates[i].Name == name {
				s.named[client.ObjectKeyFromObject(&updates[i])], found = name, true
			}
		}
		if !found {
			unknown = append(unknown, fmt.Sprintf("%q", name))
		}
	}
	if len(unknown) > 0 {
		return fmt.Errorf("there is no Machine in %s that is named %s or whose node is; `kubectl get machines -A` lists all", s.Scope, strings.Join(unknown, " or "))
	}
	return nil
}

// checkScope returns an error if there is no Cluster in the namespace, or none of the name: a name that is mistyped is not to be taken for
// a cluster without updates. Who may not list Clusters is not told.
func (s *Status) checkScope(ctx context.Context) error {
	if s.Scope == (Scope{}) {
		return nil
	}
	var list clusterv1.ClusterList
	switch err := s.Client.List(ctx, &list, client.InNamespace(s.Scope.Namespace)); {
	case apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("list Clusters in %s: %w", s.Scope, err)
	}
	in := Scope{Namespace: s.Scope.Namespace}
	switch {
	case s.Scope.Cluster != "" && !slices.ContainsFunc(list.Items, func(c clusterv1.Cluster) bool { return c.Name == s.Scope.Cluster }):
		return fmt.Errorf("there is no Cluster %s in %s; `kubectl get clusters -A` lists all", s.Scope.Cluster, in)
	case len(list.Items) == 0:
		return fmt.Errorf("there is no Cluster in %s; `kubectl get clusters -A` lists all, and --all-namespaces shows all updates", in)
	}
	return nil
}
