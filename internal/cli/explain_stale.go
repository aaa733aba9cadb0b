package cli

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/bootimage"
	"github.com/capi-refit/refit/internal/explain"
)

// stale adds what is known of templates that would make machines which are older than those that run: by BootImagePolicies, and of all other Machines of a Cluster.
func (e *liveExplainer) stale(ctx context.Context, f *explain.Forecast, namespace, cluster string) error {
	var list refitv1.BootImagePolicyList
	if err := e.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list the BootImagePolicies of namespace %s: %w", namespace, err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		if c := meta.FindStatusCondition(p.Status.Conditions, refitv1.StaleTemplatesCondition); c != nil && c.Status == metav1.ConditionTrue {
			f.Notes = append(f.Notes, fmt.Sprintf("stale templates, by BootImagePolicy %s: %s", p.Name, c.Message))
		}
	}
	return e.levels(ctx, f, namespace, cluster)
}

// levels adds what is known of how the machines of a Cluster that are made next come up, and of what could bring them to the version that others run.
func (e *liveExplainer) levels(ctx context.Context, f *explain.Forecast, namespace, cluster string) error {
	var list clusterv1.MachineList
	if err := e.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster}); err != nil {
		return fmt.Errorf("list the Machines of Cluster %s/%s: %w", namespace, cluster, err)
	}
	levels, err := bootimage.Levels(ctx, e.client, e.by.Images, list.Items)
	if err != nil {
		return err
	}
	told := strings.Join(f.Notes, "\n")
	for _, l := range levels {
		if !l.Stale || !strings.Contains(told, l.Template+" names ") { // a policy has said it
			f.Notes = append(f.Notes, l.Says)
		}
	}
	e.lacking(ctx, f, list.Items)
	return ctx.Err()
}

// lacking adds which KubernetesSources do not have what their Machines run.
func (e *liveExplainer) lacking(ctx context.Context, f *explain.Forecast, machines []clusterv1.Machine) {
	lacking := map[string]bool{}
	for i := range machines {
		m := &machines[i]
		source, err := e.by.Sources.Machine(ctx, m)
		if source == nil || err != nil || m.Spec.Version == "" {
			continue // none is asked, or somebody has to correct sources first, whose status says so
		}
		if _, err := source.For(m.Spec.Version); err != nil && !lacking[err.Error()] {
			lacking[err.Error()] = true
			f.Notes = append(f.Notes, fmt.Sprintf("a machine that comes up older could not be brought to what Machine %s runs: %v", m.Name, err))
		}
	}
}
