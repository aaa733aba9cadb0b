package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/explain"
	"github.com/capi-refit/refit/internal/managementtest"
)

// liveWorkers are those of the example with a MachineSet and two Machines, as they are before.
func liveWorkers(t *testing.T) client.WithWatch {
	t.Helper()
	c := managementtest.NewForApply(managementtest.NewScheme(controlplanev1.AddToScheme))
	for plural, kind := range map[string]schema.GroupVersionKind{
		"kubeadmconfigtemplates": {Group: "bootstrap.cluster.x-k8s.io", Version: "v1beta2", Kind: "KubeadmConfigTemplate"},
		"devmachinetemplates":    {Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Kind: "DevMachineTemplate"},
	} {
		require.NoError(t, c.Create(t.Context(), managementtest.CRD(plural, kind)))
	}
	objects, err := explain.Read([]byte(readPage(t, filepath.Join(explainExamples, "before", "prod.yaml"))))
	require.NoError(t, err)
	for _, o := range objects {
		if o.GetKind() == "KubeadmControlPlane" || o.GetName() == "gpu" {
			continue
		}
		o.SetUID("uid-of-owner")
		require.NoError(t, c.Create(t.Context(), o))
	}
	require.NoError(t, c.Create(t.Context(), managementtest.Cluster("fleet", "prod", nil)))

	var md clusterv1.MachineDeployment
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "workers"}, &md))
	set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "workers-old", UID: "uid-of-set"}}
	set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&md, clusterv1.GroupVersion.WithKind("MachineDeployment"))}
	set.Spec.ClusterName, set.Spec.Template = "prod", *md.Spec.Template.DeepCopy()
	require.NoError(t, c.Create(t.Context(), set))
	for _, name := range []string{"w1", "w2"} {
		require.NoError(t, c.Create(t.Context(), managementtest.Machine("fleet", name, "prod", func(m *clusterv1.Machine) {
			m.Labels[clusterv1.MachineDeploymentNameLabel] = "workers"
			m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, clusterv1.GroupVersion.WithKind("MachineSet"))}
			m.Spec = *md.Spec.Template.Spec.DeepCopy()
		})))
	}
	return c
}

// wantedWorkers is a file with what of the example the workers are to be.
func wantedWorkers(t *testing.T) string {
	t.Helper()
	var docs []string
	for doc := range strings.SplitSeq(readPage(t, filepath.Join(explainExamples, "after", "prod.yaml")), "\n---\n") {
		if strings.Contains(doc, "name: workers") {
			docs = append(docs, doc)
		}
	}
	name := filepath.Join(t.TempDir(), "new.yaml")
	require.NoError(t, os.WriteFile(name, []byte(strings.Join(docs, "\n---\n")), 0o600))
	return name
}

func TestDiffAgainstAManagementCluster(t *testing.T) {
	c := liveWorkers(t)
	diff := func(args ...string) (string, error) {
		return run(t, (&explainFlags{managementFlags: connected(c)}).diffCommand(), append(args, "-n", "fleet", "-f", wantedWorkers(t))...)
	}
	out, err := diff()
	require.NoError(t, err)
	require.Contains(t, out, "MachineDeployment/workers  InPlace")
	require.Contains(t, out, "Restart systemd-sysctl.service")
	require.Contains(t, out, "  w1 ")
	_, err = diff("--fail-on", "Restart")
	require.Equal(t, 2, statusOf(err))
	_, err = diff("--fail-on", "Reboot")
	require.NoError(t, err)
}

func TestExplainWhatWaits(t *testing.T) {
	c := liveWorkers(t)
	ask := func(args ...string) (string, error) {
		return run(t, (&explainFlags{managementFlags: connected(c)}).command(), append(args, "-n", "fleet")...)
	}
	out, err := ask("machinedeployment/workers")
	require.NoError(t, err)
	require.Contains(t, out, "Verdict: None\n")

	objects, err := explain.Read([]byte(readPage(t, wantedWorkers(t))))
	require.NoError(t, err)
	for _, o := range objects {
		if o.GetKind() != "MachineDeployment" {
			require.NoError(t, c.Create(t.Context(), o))
		}
	}
	var md clusterv1.MachineDeployment
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "workers"}, &md))
	md.Spec.Template.Spec.Bootstrap.ConfigRef.Name = "workers-2"
	require.NoError(t, c.Update(t.Context(), &md))
	out, err = ask("md/workers", "--fail-on=Restart")
	require.Equal(t, 2, statusOf(err), "%v", err)
	require.Contains(t, out, "MachineDeployment/workers  InPlace  2: 2 in place")
	require.Contains(t, out, "Restart systemd-sysctl.service")

	policy := &refitv1.BootImagePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "images"}}
	policy.Status.Conditions = []metav1.Condition{{Type: refitv1.StaleTemplatesCondition, Status: metav1.ConditionFalse, Message: "nothing is old"}}
	require.NoError(t, c.Create(t.Context(), policy))
	notes := func() string {
		out, err := ask("cluster/prod", "-o", "json")
		require.NoError(t, err)
		return out
	}
	require.NotContains(t, notes(), "stale templates")
	require.Contains(t, notes(), "Unknown: whether a machine that is made now from", "no policy selects them")
	source := &refitv1.KubernetesSource{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "mirror"}}
	source.Spec.Packages, source.Spec.Versions = &refitv1.PackagesSource{Manager: refitv1.APTPackages}, []refitv1.SourceVersion{{Version: "v1.30.0"}}
	require.NoError(t, c.Create(t.Context(), source))
	require.Contains(t, notes(), "a machine that comes up older could not be brought to what Machine w1 runs: KubernetesSource mirror does not have")
	require.NoError(t, c.Delete(t.Context(), source))
	policy.Status.Conditions[0].Status, policy.Status.Conditions[0].Message = metav1.ConditionTrue, "AcmeMachineTemplate a is old"
	require.NoError(t, c.Status().Update(t.Context(), policy))
	require.Contains(t, notes(), "stale templates, by BootImagePolicy images: AcmeMachineTemplate a is old")

	_, err = ask("md/none")
	require.ErrorContains(t, err, "there is no MachineDeployment fleet/none")
}

// TestTheServersFlagsCount has the server take a file without an action, which the built-in rules don't have.
func TestTheServersFlagsCount(t *testing.T) {
	c := liveWorkers(t)
	diff := func(args ...string) string {
		out, err := run(t, (&explainFlags{managementFlags: connected(c)}).diffCommand(), append(args, "-n", "fleet", "-f", ownFile(t))...)
		require.NoError(t, err)
		return out
	}
	out := diff()
	require.Contains(t, out, "MachineDeployment/workers  Replace")
	require.Contains(t, out, "with which flags refit's server runs is not known: there are 0 Deployments of it; say with --allow-paths what it has")
	require.Contains(t, diff("--allow-paths", "/opt/own"), "MachineDeployment/workers  InPlace")

	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "refit-system", Name: "refit", Labels: map[string]string{"app.kubernetes.io/name": "refit"}}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Args: []string{"serve", "--leader-elect", "--admission-port=9444", "--allow-paths=/opt/own"}}}
	require.NoError(t, c.Create(t.Context(), d))
	out = diff()
	require.Contains(t, out, "MachineDeployment/workers  InPlace")
	require.NotContains(t, out, "is not known")
	require.Contains(t, diff("--allow-paths", "/etc/other"), "MachineDeployment/workers  Replace", "the command line counts")

	// Others may claim what refit's own updaters leave, if the server asks them.
	for name, priority := range map[string]int32{"disks": 1, "tuned": 5, "elsewhere": 9} {
		r := &refitv1.UpdaterRegistration{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: refitv1.UpdaterRegistrationSpec{Priority: priority}}
		if name == "elsewhere" {
			r.Spec.BootstrapKinds = []string{"RKE2Config"}
		}
		require.NoError(t, c.Create(t.Context(), r))
	}
	require.Contains(t, diff("--allow-paths", "/etc/other"), "MachineDeployment/workers  Replace", "it asks nobody")
	d.Spec.Template.Spec.Containers[0].Args = append(d.Spec.Template.Spec.Containers[0].Args, "--registered-updaters")
	require.NoError(t, c.Update(t.Context(), d))
	require.Contains(t, diff(), "MachineDeployment/workers  InPlace")
	out = diff("--allow-paths", "/etc/other")
	require.Contains(t, out, "MachineDeployment/workers  Unknown")
	require.Contains(t, strings.Join(strings.Fields(out), " "), "it may be claimed by UpdaterRegistration tuned, then disks, which refit asks")
}

// TestExplainSaysWhatTheServerHasAsked: explain asks no registered updater, and the server does.
func TestExplainSaysWhatTheServerHasAsked(t *testing.T) {
	c := liveWorkers(t)
	objects, err := explain.Read([]byte(readPage(t, ownFile(t))))
	require.NoError(t, err)
	for _, o := range objects {
		if o.GetKind() == "KubeadmConfigTemplate" {
			require.NoError(t, c.Create(t.Context(), o))
		}
	}
	var md clusterv1.MachineDeployment
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "workers"}, &md))
	md.Spec.Template.Spec.Bootstrap.ConfigRef.Name = "workers-2"
	require.NoError(t, c.Update(t.Context(), &md))
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "refit-system", Name: "refit", Labels: map[string]string{"app.kubernetes.io/name": "refit"}}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Args: []string{"serve", "--registered-updaters"}}}
	require.NoError(t, c.Create(t.Context(), d))
	require.NoError(t, c.Create(t.Context(), &refitv1.UpdaterRegistration{ObjectMeta: metav1.ObjectMeta{Name: "disks"}}))
	pending := &refitv1.PendingChange{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "workers"}}
	pending.Spec = refitv1.PendingChangeSpec{Cluster: "prod", Owner: refitv1.PendingOwner{Kind: "MachineDeployment", Name: "workers"}}
	pending.Status.Conditions = []metav1.Condition{{
		Type: refitv1.ChangePendingCondition, Status: metav1.ConditionTrue, Reason: "Pending", Message: "2 to be updated in place; spec.files of the bootstrapConfig by UpdaterRegistration disks",
	}}
	require.NoError(t, c.Create(t.Context(), pending))
	out, err := run(t, (&explainFlags{managementFlags: connected(c)}).command(), "machinedeployment/workers", "-n", "fleet")
	require.NoError(t, err)
	require.Contains(t, out, "MachineDeployment/workers  Unknown")
	require.Contains(t, out, "refit's server says of what waits: 2 to be updated in place; spec.files of the bootstrapConfig by UpdaterRegistration disks")

	// Of each field it says who claims it.
	fields := func() []handlers.FieldExplanation {
		var forecast explain.Forecast
		out, err := run(t, (&explainFlags{managementFlags: connected(c)}).command(), "machinedeployment/workers", "-n", "fleet", "-o", "json")
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal([]byte(out), &forecast))
		return slices.DeleteFunc(forecast.Owners[0].Fields, func(f handlers.FieldExplanation) bool { return f.Covered })
	}
	left := fields()
	require.NotEmpty(t, left)
	require.Empty(t, left[0].Claimants)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(pending), pending))
	pending.Status.Claims = []refitv1.PendingClaim{
		{Object: string(left[0].Object), Field: left[0].Path, Registration: "disks"},
		{Object: "machine", Field: left[0].Path, Registration: "others"},
	}
	require.NoError(t, c.Status().Update(t.Context(), pending))
	require.Equal(t, []string{"disks"}, fields()[0].Claimants)
	for _, format := range []string{"table", "markdown"} {
		out, err := run(t, (&explainFlags{managementFlags: connected(c)}).command(), "machinedeployment/workers", "-n", "fleet", "-o", format)
		require.NoError(t, err)
		require.Contains(t, out, "UpdaterRegistration/disks")
		require.Contains(t, out, "claimed, as refit's server was told")
	}
}

// ownFile is a file with the workers' configuration as it is in the example, and one file more in a directory that no rule knows.
func ownFile(t *testing.T) string {
	t.Helper()
	objects, err := explain.Read([]byte(readPage(t, wantedWorkers(t))))
	require.NoError(t, err)
	var docs []string
	for _, o := range objects {
		if o.GetKind() == "KubeadmConfigTemplate" {
			spec := map[string]any{"files": []any{map[string]any{"path": "/opt/own/a.conf", "content": "a"}}}
			require.NoError(t, unstructured.SetNestedField(o.Object, spec, "spec", "template", "spec"))
		}
		data, err := yaml.Marshal(o.Object)
		require.NoError(t, err)
		docs = append(docs, string(data))
	}
	name := filepath.Join(t.TempDir(), "own.yaml")
	require.NoError(t, os.WriteFile(name, []byte(strings.Join(docs, "\n---\n")), 0o600))
	return name
}
