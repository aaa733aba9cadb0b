//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// disturbedMachines are the scenarios of having a node to oneself that take a real cluster.
var disturbedMachines = []scenario{
	{"a pod with a PodDisruptionBudget leaves when it may, and is back", (*suite).realDrain},
	{"a wrong change is taken back, of workers and of a control plane", (*suite).wrongChangeIsTakenBack},
	{"workers that a wrong change has all made not ready are cured by the former template and refit rollback", (*suite).bothAreCured},
	{"a NodeMaintenance keeps refit off, after its lease is gone, too", (*suite).nodeMaintenance},
	{"a node that reboots in the middle of its update resumes", (*suite).rebootResumes},
	{"the API server goes away and comes back in the middle of an update of the control plane", (*suite).apiServerAway},
}

// guests starts a Deployment of two pods on different nodes, and a budget that lets none of them leave.
func (u *suite) guests(ctx context.Context, t *testing.T, workload client.Client) (*appsv1.Deployment, *policyv1.PodDisruptionBudget) {
	t.Helper()
	labels := map[string]string{"app": "guests"}
	var dns appsv1.Deployment
	require.NoError(t, workload.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "coredns"}, &dns))
	guest := corev1.Container{
		Name: "guest", Image: dns.Spec.Template.Spec.Containers[0].Image, // every node has it
		Args: []string{"-dns.port", "15353"}, ImagePullPolicy: corev1.PullIfNotPresent,
		// Two on one node would not go together.
		Ports: []corev1.ContainerPort{{ContainerPort: 15353, HostPort: 15353}},
	}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "guests"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					HostNetwork: true, TerminationGracePeriodSeconds: ptr.To[int64](1), Containers: []corev1.Container{guest},
					Tolerations: []corev1.Toleration{{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists}},
				},
			},
		},
	}
	require.NoError(t, workload.Create(ctx, d))
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: "guests"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: ptr.To(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		},
	}
	require.NoError(t, workload.Create(ctx, budget))
	u.guestsRun(ctx, t, workload)
	return d, budget
}

// guestsRun waits until both pods run.
func (u *suite) guestsRun(ctx context.Context, t *testing.T, workload client.Client) {
	t.Helper()
	require.NoError(t, poll(ctx, 500*time.Millisecond, func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		if err := workload.List(ctx, &pods, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{"app": "guests"}); err != nil {
			return false, nil // the API server may be away for a moment
		}
		running := 0
		for _, p := range pods.Items {
			if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		return running == 2, nil
	}), "the guests do not run")
}

func (u *suite) realDrain(ctx context.Context, t *testing.T) {
	before, workload := u.identities(ctx, t), u.workload(ctx, t)
	d, budget := u.guests(ctx, t, workload)
	f := file("/etc/containerd/conf.d/e2e.toml", "version = 3\n")
	require.NoError(t, u.PutFiles(ctx, f))
	var blocked *refitv1.MachineUpdate
	require.NoError(t, poll(ctx, 200*time.Millisecond, func(ctx context.Context) (bool, error) {
		updates, err := u.Updates(ctx)
		for i := range updates {
			if drain := updates[i].Status.Drain; drain != nil && strings.Contains(strings.Join(drain.Blocked, " "), "guests") {
				blocked = &updates[i]
			}
		}
		return blocked != nil, err
	}), "no drain is blocked by the PodDisruptionBudget")
	_, err := u.Fleet.Node(blocked.Name).ReadFile(ctx, f.Path)
	require.Error(t, err, "nothing is written before the pods have left")

	strict := budget.DeepCopy()
	budget.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(1))
	require.NoError(t, workload.Patch(ctx, budget, client.MergeFrom(strict)))
	u.rollOut(ctx, t, before)
	u.everywhere(ctx, t, f)
	u.guestsRun(ctx, t, workload)
	u.healthy(ctx, t)
	u.nothingLeft(ctx, t, workload)
	require.NoError(t, workload.Delete(ctx, budget))
	require.NoError(t, workload.Delete(ctx, d))
}

// maintenanceCRD is the node-maintenance-operator's, as far as it matters.
func maintenanceCRD() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "nodemaintenances.nodemaintenance.medik8s.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "nodemaintenance.medik8s.io", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "nodemaintenances", Singular: "nodemaintenance", Kind: "NodeMaintenance", ListKind: "NodeMaintenanceList",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1beta1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: ptr.To(true),
				}},
			}},
		},
	}
}

// nodeMaintenance puts a node into maintenance as the node-maintenance-operator does: a lease, and a NodeMaintenance which
// outlives it.
func (u *suite) nodeMaintenance(ctx context.Context, t *testing.T) {
	before, workload := u.identities(ctx, t), u.workload(ctx, t)
	name := u.workers(ctx, t)[0]
	require.NoError(t, client.IgnoreAlreadyExists(workload.Create(ctx, maintenanceCRD())))
	maintenance := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "nodemaintenance.medik8s.io/v1beta1", "kind": "NodeMaintenance",
		"metadata": map[string]any{"name": "e2e"},
		"spec":     map[string]any{"nodeName": u.nodeOf(ctx, t, name), "reason": "new fans"},
	}}
	require.NoError(t, poll(ctx, 200*time.Millisecond, func(ctx context.Context) (bool, error) {
		return workload.Create(ctx, maintenance) == nil, nil
	}), "a NodeMaintenance can't be created")
	u.seize(ctx, t, workload, name, "node-maintenance")

	f := file(app+"/maintained", "after the fans\n")
	require.NoError(t, u.PutFiles(ctx, f))
	_, err := u.AwaitUpdate(ctx, name, waiting(refitv1.ReasonLease))
	require.NoError(t, err)
	require.NoError(t, workload.Delete(ctx, u.nodeLease(ctx, t, workload, name)))
	mu, err := u.AwaitUpdate(ctx, name, waiting(refitv1.ReasonHold))
	require.NoError(t, err)
	require.Contains(t, mu.Status.Message, "NodeMaintenance e2e")
	require.Contains(t, mu.Status.Message, "new fans")
	_, err = u.Fleet.Node(name).ReadFile(ctx, f.Path)
	require.Error(t, err)

	require.NoError(t, workload.Delete(ctx, maintenance))
	u.rollOut(ctx, t, before)
	require.NoError(t, u.CheckFile(ctx, name, f))
	u.nothingLeft(ctx, t, workload)
}

func (u *suite) rebootResumes(ctx context.Context, t *testing.T) {
	before, workload := u.identities(ctx, t), u.workload(ctx, t)
	u.needsSystemd(t)
	booted := map[string]string{}
	for _, name := range u.workers(ctx, t) {
		boot, err := u.Fleet.Node(name).Boot(ctx)
		require.NoError(t, err)
		booted[name] = boot
	}
	f := file(rebootDir+"/cmdline", "quiet\n")
	require.NoError(t, u.Cluster.SetWorkerFiles(ctx, file("/etc/demo.conf", "hello\n"), editedFile, f))
	u.rollOut(ctx, t, before)
	for name, old := range booted {
		require.NoError(t, u.CheckFile(ctx, name, f))
		now, err := u.Fleet.Node(name).Boot(ctx)
		require.NoError(t, err)
		require.NotEqual(t, old, now, "%s was not rebooted", name)
		mu, err := u.Update(ctx, name)
		require.NoError(t, err)
		require.Contains(t, mu.Status.Actions, "Reboot")
		asked := 0
		for _, e := range u.onceEach(ctx, t, name, mu.Spec.Digest) {
			if e.Event == "reboot-asked" {
				asked++
			}
		}
		// It may have gone down before it could note that it was asked.
		require.LessOrEqual(t, asked, 1, "%s was asked to reboot once", name)
	}
	u.nothingLeft(ctx, t, workload)
}

// apiServerAway takes the way to the cluster's API server away in the middle of the update of one of its control-plane nodes.
func (u *suite) apiServerAway(ctx context.Context, t *testing.T) {
	before, workload := u.identities(ctx, t), u.workload(ctx, t)
	u.slowEverywhere(ctx, t)
	f := slowFile("while the API is away")
	require.NoError(t, u.Cluster.ChangeControlPlane(ctx, func(kcp *controlplanev1.KubeadmControlPlane) {
		kcp.Spec.KubeadmConfigSpec.Files = append(kcp.Spec.KubeadmConfigSpec.Files, f)
	}))
	machines, err := u.Cluster.ControlPlaneMachines(ctx)
	require.NoError(t, err)
	var name string
	require.NoError(t, poll(ctx, 50*time.Millisecond, func(ctx context.Context) (bool, error) {
		for _, m := range machines {
			mu, err := u.Update(ctx, m.Name)
			if err != nil {
				return false, err
			}
			if mu != nil && mu.Status.Phase == refitv1.PhaseApplying && mu.Status.StepsTotal > 0 {
				name = m.Name
			}
		}
		return name != "", nil
	}), "no update of the control plane is under way")
	power := func(verb string) {
		_, err := u.Lab.Engine().Run(ctx, nil, verb, u.Cluster.Name+"-lb")
		require.NoError(t, err)
	}
	power("pause")
	mu, err := u.AwaitUpdate(ctx, name, waiting(refitv1.ReasonWorkload))
	power("unpause")
	require.NoError(t, err)
	require.NoError(t, u.CheckFile(ctx, name, f), "what ran on the node ran on: %s", mu.Status.Message)
	u.rollOut(ctx, t, before)
	u.healthy(ctx, t)
	for _, m := range machines {
		require.NoError(t, u.CheckFile(ctx, m.Name, f))
		mu, err := u.Update(ctx, m.Name)
		require.NoError(t, err)
		u.onceEach(ctx, t, m.Name, mu.Spec.Digest)
	}
	u.nothingLeft(ctx, t, workload)
}
