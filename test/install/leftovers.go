package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
)

// OfRefit returns all objects of refit that there are, of whatever kind, as resource.group/namespace/name: those whose name says so, those in its
// namespace, and those that are labelled as its. Events are not among them: they end by themselves.
func (m *Management) OfRefit(ctx context.Context, namespace string) ([]string, error) {
	d, err := discovery.NewDiscoveryClientForConfig(m.Lab.Config)
	if err != nil {
		return nil, err
	}
	c, err := metadata.NewForConfig(m.Lab.Config)
	if err != nil {
		return nil, err
	}
	lists, err := d.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Name == "events" {
				continue
			}
			ofOne, err := ofRefit(ctx, c, gv.WithResource(r.Name), namespace)
			if err != nil {
				return nil, err
			}
			found = append(found, ofOne...)
		}
	}
	slices.Sort(found)
	return found, nil
}

// ofRefit returns the objects of refit of one kind.
func ofRefit(ctx context.Context, c metadata.Interface, r schema.GroupVersionResource, namespace string) ([]string, error) {
	all, err := c.Resource(r).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil, nil // it has gone since, or has no metadata
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", r.Resource, err)
	}
	var found []string
	for _, o := range all.Items {
		if strings.Contains(o.Name, "refit") || o.Namespace == namespace || o.Labels["cluster.x-k8s.io/provider"] == label {
			found = append(found, fmt.Sprintf("%s.%s/%s/%s", r.Resource, r.Group, o.Namespace, o.Name))
		}
	}
	return found, nil
}
