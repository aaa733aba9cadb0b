package live

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/explain"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/managementtest"
)

const fleet = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: prod, namespace: fleet}
spec: {controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: cp}}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: cp, namespace: fleet, labels: {cluster.x-k8s.io/cluster-name: prod}}
spec:
  replicas: 1
  version: v1.36.1
  machineTemplate: {spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AcmeMachineTemplate, name: infra}}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: workers, namespace: fleet, labels: {cluster.x-k8s.io/cluster-name: prod}}
spec:
  clusterName: prod
  replicas: 2
  template:
    spec:
      clusterName: prod
      version: v1.36.1
      bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: config-1}}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AcmeMachineTemplate, name: infra}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: config-1, namespace: fleet}
spec: {template: {spec: {files: [{path: /etc/a, content: one}]}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1
kind: AcmeMachineTemplate
metadata: {name: infra, namespace: fleet}
spec: {template: {spec: {size: small}}}
`

const topology = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: classy, namespace: fleet}
spec: {topology: {classRef: {name: class}, version: v1.36.1, controlPlane: {replicas: 3}}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: ClusterClass
metadata: {name: class, namespace: fleet}
spec: {controlPlane: {templateRef: {apiVersion: controlplane.cluster.x-k8s.io/v1beta2, kind: KubeadmControlPlaneTemplate, name: cp}}}
`

func objects(t *testing.T, text string) *explain.Set {
	t.Helper()
	all, err := explain.Read([]byte(text))
	require.NoError(t, err)
	s, err := explain.NewSet(all...)
	require.NoError(t, err)
	return s
}

func newCluster(t *testing.T, texts ...string) (*Cluster, client.WithWatch) {
	t.Helper()
	c := managementtest.NewForApply(managementtest.NewScheme(controlplanev1.AddToScheme))
	for plural, kind := range map[string]schema.GroupVersionKind{
		"kubeadmconfigtemplates":       {Group: "bootstrap.cluster.x-k8s.io", Version: "v1beta2", Kind: "KubeadmConfigTemplate"},
		"kubeadmcontrolplanetemplates": {Group: "controlplane.cluster.x-k8s.io", Version: "v1beta2", Kind: "KubeadmControlPlaneTemplate"},
		"acmemachinetemplates":         {Group: "infrastructure.cluster.x-k8s.io", Version: "v1", Kind: "AcmeMachineTemplate"},
	} {
		require.NoError(t, c.Create(t.Context(), managementtest.CRD(plural, kind)))
	}
	for _, text := range texts {
		s := objects(t, text)
		for _, key := range s.Keys() {
			require.NoError(t, c.Create(t.Context(), s.Get(key)))
		}
	}
	return &Cluster{Client: c, Writer: c, FieldManager: "tests", Differences: differences(nil)}, c
}

// differences are what Machines differ in; an error for those that are not there.
type differences map[string]fieldset.Change

func (d differences) Difference(_ context.Context, key client.ObjectKey) (fieldset.Change, error) {
	change, ok := d[key.Name]
	if !ok {
		return nil, errors.New("nobody knows")
	}
	return change, nil
}

func names(s *explain.Set) (out []string) {
	for _, key := range s.Keys() {
		out = append(out, key.Kind+"/"+key.Name)
	}
	return out
}

// The files have a new template and an owner that moves to it; what both point to is read.
func TestDiff(t *testing.T) {
	c, live := newCluster(t, fleet)
	files := objects(t, strings.NewReplacer("config-1", "config-2", "content: one", "content: two").Replace(fleet[strings.Index(fleet, "kind: MachineDeployment")-len("apiVersion: cluster.x-k8s.io/v1beta2\n"):strings.Index(fleet, "---\napiVersion: infrastructure")]))
	require.Equal(t, []string{"KubeadmConfigTemplate/config-2", "MachineDeployment/workers"}, names(files))
	from, to, err := c.Diff(t.Context(), files)
	require.NoError(t, err)
	require.Equal(t, []string{"AcmeMachineTemplate/infra", "KubeadmConfigTemplate/config-1", "MachineDeployment/workers"}, names(from))
	require.Equal(t, []string{"AcmeMachineTemplate/infra", "KubeadmConfigTemplate/config-2", "MachineDeployment/workers"}, names(to))

	var md clusterv1.MachineDeployment
	require.NoError(t, live.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "workers"}, &md))
	require.Equal(t, "config-1", md.Spec.Template.Spec.Bootstrap.ConfigRef.Name, "nothing is written")
}

// Of a ClusterClass its Clusters are told, too, and of a Cluster its ClusterClass is read.
func TestDiffOfAClusterClass(t *testing.T) {
	c, _ := newCluster(t, topology)
	cluster, ofClass, found := strings.Cut(topology, "---\n")
	require.True(t, found)
	class := objects(t, ofClass)
	from, to, err := c.Diff(t.Context(), class)
	require.NoError(t, err)
	require.Equal(t, []string{"Cluster/classy", "ClusterClass/class"}, names(from))
	require.Equal(t, names(from), names(to))

	from, to, err = c.Diff(t.Context(), objects(t, cluster))
	require.NoError(t, err)
	require.Equal(t, []string{"Cluster/classy", "ClusterClass/class"}, names(from))
	require.Equal(t, names(from), names(to))
}

// Of a template, what names it in the management cluster is told, too.
func TestDiffOfTemplates(t *testing.T) {
	const ofClass = "apiVersion: controlplane.cluster.x-k8s.io/v1beta2\nkind: KubeadmControlPlaneTemplate\nmetadata: {name: cp, namespace: fleet}\nspec: {template: {spec: {kubeadmConfigSpec: {files: [{path: /etc/a, content: one}]}}}}\n"
	c, _ := newCluster(t, fleet, topology, ofClass)
	for name, tc := range map[string]struct {
		file string
		want []string
	}{
		"of a ClusterClass": {ofClass, []string{"Cluster/classy", "ClusterClass/class", "KubeadmControlPlaneTemplate/cp"}},
		"of owners": {
			"apiVersion: infrastructure.cluster.x-k8s.io/v1\nkind: AcmeMachineTemplate\nmetadata: {name: infra, namespace: fleet}\nspec: {template: {spec: {size: one}}}\n",
			[]string{"AcmeMachineTemplate/infra", "KubeadmConfigTemplate/config-1", "KubeadmControlPlane/cp", "MachineDeployment/workers"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			from, to, err := c.Diff(t.Context(), objects(t, strings.Replace(tc.file, "one", "two", 1)))
			require.NoError(t, err)
			require.Equal(t, tc.want, names(from))
			require.Equal(t, tc.want, names(to))
			forecast, err := (&explain.Explainer{Judge: replaces{}}).Compare(t.Context(), from, to)
			require.NoError(t, err)
			for _, o := range forecast.Owners {
				require.NotContains(t, strings.Join(o.Notes, " "), "no owner that is given names it")
			}
		})
	}
	from, to, err := c.Diff(t.Context(), objects(t, strings.Replace(ofClass, "one", "two", 1)))
	require.NoError(t, err)
	forecast, err := (&explain.Explainer{Judge: replaces{}}).Compare(t.Context(), from, to)
	require.NoError(t, err)
	require.Equal(t, explain.Replace, forecast.Verdict, "a topology goes by what its templates say")
}

// replaces is a judge that has nothing made in place.
type replaces struct{}

func (replaces) ExplainChange(context.Context, inplace.Subject, fieldset.Change) (*handlers.Explanation, error) {
	return &handlers.Explanation{Verdict: handlers.VerdictReplace, Disruption: disruption.Replace}, nil
}

func TestDiffThatTheAPIServerRefuses(t *testing.T) {
	c, live := newCluster(t, fleet)
	for name, tc := range map[string]struct {
		err  error
		says string
	}{
		"invalid": {
			apierrors.NewInvalid(schema.GroupKind{Kind: "A"}, "a", field.ErrorList{field.Invalid(field.NewPath("spec", "x"), "secret", "is secret")}),
			"it is invalid: spec.x (FieldValueInvalid)",
		},
		"forbidden": {apierrors.NewForbidden(schema.GroupResource{Resource: "a"}, "a", errors.New("you may not")), "you may not"},
	} {
		t.Run(name, func(t *testing.T) {
			c.Writer = interceptor.NewClient(live, interceptor.Funcs{
				Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
					return tc.err
				},
			})
			_, _, err := c.Diff(t.Context(), objects(t, fleet))
			require.ErrorContains(t, err, tc.says)
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestOwners(t *testing.T) {
	c, _ := newCluster(t, fleet)
	for arg, want := range map[[2]string][]string{
		{"machinedeployment", "workers"}: {"workers"}, {"MD", "workers"}: {"workers"}, {"kcp", "cp"}: {"cp"}, {"cluster", "prod"}: {"cp", "workers"},
	} {
		owners, err := c.Owners(t.Context(), arg[0], "fleet", arg[1])
		require.NoError(t, err)
		var got []string
		for _, o := range owners {
			got = append(got, o.GetName())
		}
		require.Equal(t, want, got)
	}
	_, err := c.Owners(t.Context(), "machineset", "fleet", "x")
	require.ErrorContains(t, err, "machinedeployment/NAME")
	_, err = c.Owners(t.Context(), "md", "fleet", "x")
	require.ErrorContains(t, err, "there is no MachineDeployment fleet/x")
}

// TestUpdatesThatHaveNotEnded are those for the specs that are asked for, whatever was made before.
func TestUpdatesThatHaveNotEnded(t *testing.T) {
	c, live := newCluster(t, fleet)
	create := func(name string, change func(*refitv1.MachineUpdateStatus)) {
		mu := &refitv1.MachineUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "prod"}}}
		mu.Spec.Digest, mu.Status.ObservedDigest = "now", "now"
		change(&mu.Status)
		require.NoError(t, live.Create(t.Context(), mu))
	}
	create("done", func(s *refitv1.MachineUpdateStatus) { s.Phase = refitv1.PhaseSucceeded })
	create("failed", func(s *refitv1.MachineUpdateStatus) { s.Phase = refitv1.PhaseFailed })
	create("again", func(s *refitv1.MachineUpdateStatus) { s.Phase, s.ObservedDigest = refitv1.PhaseSucceeded, "before" })
	create("waits", func(s *refitv1.MachineUpdateStatus) {
		s.Phase, s.Plan = refitv1.PhaseWaiting, &refitv1.PlannedWork{Material: true, Disruption: "Restart", Actions: []string{"Restart a.service"}}
	})
	create("harmless", func(s *refitv1.MachineUpdateStatus) { s.Phase, s.Plan = refitv1.PhaseWaiting, &refitv1.PlannedWork{} })
	create("applies", func(s *refitv1.MachineUpdateStatus) {
		s.Phase, s.Admission = refitv1.PhaseApplying, &refitv1.Admission{}
	})
	updates, err := c.updates(t.Context(), "fleet", "prod")
	require.NoError(t, err)
	require.Equal(t, map[string]explain.Update{
		"again": {}, "waits": {Disruption: disruption.Restart, Actions: []string{"Restart a.service"}}, "harmless": {Disruption: disruption.None}, "applies": {Started: true},
	}, updates)
}

func TestLots(t *testing.T) {
	c, live := newCluster(t, fleet)
	create := func(name, set string, labels map[string]string) {
		m := managementtest.Machine("fleet", name, "prod", func(m *clusterv1.Machine) {
			for k, v := range labels {
				m.Labels[k] = v
			}
			if set != "" {
				m.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet", Name: set, UID: "x", Controller: new(true)}}
			}
		})
		require.NoError(t, live.Create(t.Context(), m))
	}
	of := map[string]string{clusterv1.MachineDeploymentNameLabel: "workers"}
	create("a", "old", of)
	create("b", "new", of)
	create("c", "old", of)
	create("cp", "", map[string]string{clusterv1.MachineControlPlaneLabel: ""})
	create("other", "else", map[string]string{clusterv1.MachineDeploymentNameLabel: "others"})
	c.Differences = differences{"a": {}, "cp": {}}

	owners, err := c.Owners(t.Context(), "cluster", "fleet", "prod")
	require.NoError(t, err)
	lots, err := c.Lots(t.Context(), owners[1], "prod")
	require.NoError(t, err)
	require.Len(t, lots, 2)
	require.Len(t, lots[0].Machines, 2, "a MachineSet's are alike")
	require.NoError(t, lots[0].Err)
	require.ErrorContains(t, lots[1].Err, "nobody knows")
	lots, err = c.Lots(t.Context(), owners[0], "prod")
	require.NoError(t, err)
	require.Len(t, lots, 1)

	machines, err := c.Machines(t.Context(), &explain.Owner{Kind: "MachineDeployment", Namespace: "fleet", Name: "workers", Cluster: "prod"})
	require.NoError(t, err)
	require.Len(t, machines, 3)
	machines, err = c.Machines(t.Context(), &explain.Owner{Kind: "Cluster", Namespace: "fleet", Name: "prod", Part: "control plane", Cluster: "prod"})
	require.NoError(t, err)
	require.Len(t, machines, 1)
	machines, err = c.Machines(t.Context(), &explain.Owner{Kind: "KubeadmConfigTemplate", Namespace: "fleet", Name: "x"})
	require.NoError(t, err)
	require.Empty(t, machines)
}
