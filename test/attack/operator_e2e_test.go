//go:build e2e

package attack_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/admin"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/test/apiserver"
	"github.com/capi-refit/refit/test/apiserver/apitest"
)

const fleet, name = "fleet", "prod-w1"

// holdHook has the deletion of a held Machine wait.
const holdHook = clusterv1.PreDrainDeleteHookAnnotationPrefix + "/refit-hold"

// A management is a real API server with the CRDs and refit's RBAC as they are installed.
type management struct {
	server *apiserver.Server
	admin  client.Client
	scheme *runtime.Scheme
}

func startManagement(t *testing.T) *management {
	t.Helper()
	m := &management{scheme: runtime.NewScheme(), server: apitest.Start(t, envtest.CRDInstallOptions{Paths: []string{
		filepath.Join("..", "..", "config", "crd", "bases"),
		filepath.Join(clusterAPI(t), "core", "config", "crd", "bases", "cluster.x-k8s.io_machines.yaml"),
		filepath.Join(clusterAPI(t), "core", "config", "crd", "bases", "cluster.x-k8s.io_clusters.yaml"),
	}})}
	require.NoError(t, clientgoscheme.AddToScheme(m.scheme))
	require.NoError(t, refitv1.AddToScheme(m.scheme))
	require.NoError(t, clusterv1.AddToScheme(m.scheme))
	m.admin = m.as(t, "")
	_, err := apiserver.Apply(t.Context(), m.admin, filepath.Join("..", "..", "config", "rbac"))
	require.NoError(t, err)
	return m
}

// as returns a client of somebody. Of nobody: the administrator's.
func (m *management) as(t *testing.T, user string) client.Client {
	t.Helper()
	config := rest.CopyConfig(m.server.Config)
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	}
	c, err := client.New(config, client.Options{Scheme: m.scheme})
	require.NoError(t, err)
	return c
}

// bind gives a user a ClusterRole, in one namespace or in all.
func (m *management) bind(t *testing.T, user, role, namespace string) {
	t.Helper()
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	meta := metav1.ObjectMeta{Namespace: namespace, GenerateName: "test-"}
	if namespace != "" {
		require.NoError(t, m.admin.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}))
		return
	}
	require.NoError(t, m.admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}))
}

// role makes a ClusterRole with verbs on Machines, Clusters and MachineUpdates.
func (m *management) role(t *testing.T, role string, verbs ...string) {
	t.Helper()
	require.NoError(t, m.admin.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"cluster.x-k8s.io"}, Resources: []string{"machines", "clusters"}, Verbs: verbs},
		{APIGroups: []string{"capi-refit.dev"}, Resources: []string{"machineupdates"}, Verbs: verbs},
	}}))
}

var (
	machines  = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Machine"}
	clusters  = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Cluster"}
	machines1 = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta1", Kind: "Machine"}
	updates   = refitv1.GroupVersion.WithKind("MachineUpdate")
)

// make makes a Machine, its Cluster and its MachineUpdate, with what there is to lose.
func (m *management) make(t *testing.T, namespace string) {
	t.Helper()
	require.NoError(t, m.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	for gvk, spec := range map[schema.GroupVersionKind]map[string]any{
		machines: {
			"clusterName": "prod", "bootstrap": map[string]any{"dataSecretName": "x"},
			"infrastructureRef": map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DevMachine", "name": "x"},
		},
		clusters: {"paused": true},
		updates:  {"digest": "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "machineName": name, "clusterName": "prod"},
	} {
		o := object(gvk, namespace)
		o.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": "prod"})
		o.SetAnnotations(map[string]string{
			"capi-refit.dev/address": "10.0.0.1", "capi-refit.dev/hold": "true", "capi-refit.dev/retry": "1",
			clusterv1.PreDrainDeleteHookAnnotationPrefix + "/theirs": "x",
		})
		o.SetFinalizers([]string{"test.capi-refit.dev/keep"})
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "1"}})
		o.Object["spec"] = spec
		require.NoError(t, m.admin.Create(t.Context(), o))
		applied := object(gvk, namespace)
		applied.SetLabels(map[string]string{"from": "the-set"})
		require.NoError(t, m.admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("capi-machineset")))
	}
}

func object(gvk schema.GroupVersionKind, namespace string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// A change is one that is tried, by a JSON merge patch.
type change struct {
	says  string
	of    schema.GroupVersionKind
	patch string
	// needed reports that the commands for people make such changes.
	needed bool
}

func changes() []change {
	annotate := func(key, value string) string { return `{"metadata":{"annotations":{"` + key + `":` + value + `}}}` }
	all := []change{
		{"ask for another try", updates, annotate(refitv1.RetryAnnotation, `"2"`), true},
		{"ask for another try, and take an old request away", updates, annotate(refitv1.AbandonAnnotation, `"2","capi-refit.dev/retry":null`), true},
		{"ask for a rollback", updates, annotate(refitv1.RollbackAnnotation, `"2"`), true},
		{"ask for a comparison", updates, annotate(refitv1.CheckDriftAnnotation, `"2"`), true},
		{"hold a machine", machines, annotate(refitv1.HoldAnnotation, `"2026-10-03T18:00:00Z","capi-refit.dev/hold-reason":"disk","capi-refit.dev/hold-by":"ann"`), true},
		{"release a machine", machines, annotate(refitv1.HoldAnnotation, `null,"capi-refit.dev/hold-reason":null,"capi-refit.dev/hold-by":null`), true},
		{"keep Cluster API off a held machine", machines, annotate(refitv1.HoldAnnotation, `"true","capi-refit.dev/added-by-hold":"1:x","`+
			clusterv1.MachineSkipRemediationAnnotation+`":"refit","`+holdHook+`":"refit"`), true},
		{"hold a machine by the older version", machines1, annotate(refitv1.HoldAnnotation, `"false"`), true},
		{"pause a machine", machines, annotate(refitv1.RestrictiveUntilAnnotation, `"true","capi-refit.dev/restrictive-until-reason":"x","capi-refit.dev/restrictive-until-by":"ann"`), true},
		{"pause a cluster", clusters, annotate(refitv1.RestrictiveUntilAnnotation, `"true","capi-refit.dev/restrictive-until-reason":"x","capi-refit.dev/restrictive-until-by":"ann"`), true},
		{"resume a cluster", clusters, annotate(refitv1.RestrictiveUntilAnnotation, `null,"capi-refit.dev/restrictive-until-reason":null,"capi-refit.dev/restrictive-until-by":null`), true},

		{"open the policies of a cluster", clusters, annotate(refitv1.PermissiveUntilAnnotation, `"true"`), false},
		{"bypass the policies of a cluster", clusters, annotate(refitv1.BypassAnnotation, `"x"`), false},
		{"hold a cluster", clusters, annotate(refitv1.HoldAnnotation, `"2026-10-03T18:00:00Z"`), false},
		{"have Cluster API do nothing in a cluster", clusters, annotate(clusterv1.PausedAnnotation, `""`), false},
		{"unpause a cluster", clusters, `{"spec":{"paused":false}}`, false},
		{"point the address at a host of theirs", machines, annotate(refitv1.AddressAnnotation, `"6.6.6.6"`), false},
		{"point it there by the older version", machines1, annotate(refitv1.AddressAnnotation, `"6.6.6.6"`), false},
		{"take the address away", machines, annotate(refitv1.AddressAnnotation, `null`), false},
		{"take all annotations away", machines, `{"metadata":{"annotations":null}}`, false},
		{"point it there beside a hold", machines, annotate(refitv1.HoldAnnotation, `"true","capi-refit.dev/address":"6.6.6.6"`), false},
		{"hide a spec for the conversion", machines, annotate("cluster.x-k8s.io/conversion-data", `"{}"`), false},
		{"open the policies", machines, annotate(refitv1.PermissiveUntilAnnotation, `"true"`), false},
		{"say what is not so about an image", machines, annotate(refitv1.BootedImageAnnotation, `"x"`), false},
		{"keep it from remediation as somebody else", machines, annotate(clusterv1.MachineSkipRemediationAnnotation, `"mine"`), false},
		{"have its deletion wait for somebody else", machines, annotate("pre-drain.delete.hook.machine.cluster.x-k8s.io/mine", `"refit"`), false},
		{"have its deletion wait for an update", machines, annotate("pre-drain.delete.hook.machine.cluster.x-k8s.io/refit", `"refit"`), false},
		{"have its deletion wait no longer for somebody else", machines, annotate(clusterv1.PreDrainDeleteHookAnnotationPrefix+"/theirs", `null`), false},
		{"say what an update has added", machines, annotate("capi-refit.dev/added", `"1:x"`), false},
		{"have the machine deleted first", machines, annotate("cluster.x-k8s.io/delete-machine", `"yes"`), false},
		{"change the spec", machines, `{"spec":{"providerID":"evil"}}`, false},
		{"change the digest", updates, `{"spec":{"digest":"sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"}}`, false},
	}
	for _, gvk := range []schema.GroupVersionKind{machines, clusters, updates} {
		all = append(all,
			change{"clear the owners of a " + gvk.Kind, gvk, `{"metadata":{"ownerReferences":[]}}`, false},
			change{"take owners away with null from a " + gvk.Kind, gvk, `{"metadata":{"ownerReferences":null}}`, false},
			change{"add an owner to a " + gvk.Kind, gvk, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"mine","uid":"2"}]}}`, false},
			change{"clear the finalizers of a " + gvk.Kind, gvk, `{"metadata":{"finalizers":null}}`, false},
			change{"add a finalizer to a " + gvk.Kind, gvk, `{"metadata":{"finalizers":["test.capi-refit.dev/keep","example.org/mine"]}}`, false},
			change{"change a label of a " + gvk.Kind, gvk, `{"metadata":{"labels":{"cluster.x-k8s.io/cluster-name":"other"}}}`, false},
			change{"add a label to a " + gvk.Kind, gvk, `{"metadata":{"labels":{"mine":"x"}}}`, false},
			change{"clear the labels of a " + gvk.Kind, gvk, `{"metadata":{"labels":null}}`, false},
			change{"set generateName of a " + gvk.Kind, gvk, `{"metadata":{"generateName":"x-"}}`, false},
			change{"have no owners of fields on a " + gvk.Kind, gvk, `{"metadata":{"managedFields":[{}]}}`, false},
			change{"have Cluster API take away the finalizers of a " + gvk.Kind, gvk, `{"metadata":{"managedFields":[` + forged(gvk, "Apply",
				`{"f:metadata":{"f:labels":{"f:from":{}},"f:finalizers":{"v:\"test.capi-refit.dev/keep\"":{}}}}`) + `]}}`, false},
			change{"have Cluster API take away the spec of a " + gvk.Kind, gvk, `{"metadata":{"managedFields":[` + forged(gvk, "Apply",
				`{"f:metadata":{"f:labels":{"f:from":{}}},"f:spec":{"f:clusterName":{}}}`) + `]}}`, false},
			change{"write another annotation on a " + gvk.Kind, gvk, annotate("example.org/x", `"y"`), false},
		)
	}
	return append(all, change{"write what belongs on a Machine", updates, annotate(refitv1.HoldAnnotation, `"x"`), false},
		change{"write what belongs on a MachineUpdate", machines, annotate(refitv1.RetryAnnotation, `"x"`), false})
}

// forged is an entry of Cluster API's among those who own fields.
func forged(gvk schema.GroupVersionKind, operation, fields string) string {
	return `{"manager":"capi-machineset","operation":"` + operation + `","apiVersion":"` + gvk.GroupVersion().String() +
		`","time":"2026-10-03T18:00:00Z","fieldsType":"FieldsV1","fieldsV1":` + fields + `}`
}

// try makes a change without keeping it.
func try(t *testing.T, c client.Client, namespace string, ch change) error {
	t.Helper()
	return c.Patch(t.Context(), object(ch.of, namespace), client.RawPatch("application/merge-patch+json", []byte(ch.patch)), client.DryRunAll)
}

// awaitPolicy waits until the policy counts for an operator: a moment after it was made.
func awaitPolicy(t *testing.T, operator client.Client) {
	t.Helper()
	require.Eventually(t, func() bool {
		return try(t, operator, fleet, change{of: machines, patch: `{"metadata":{"labels":{"mine":"x"}}}`}) != nil
	}, 2*time.Minute, 100*time.Millisecond)
}

// TestAnOperatorOfUpdatesMayWriteItsAnnotationsAndNothingElse is about people who are bound to the ClusterRole refit-system-refit-operator, and
// about all others, whom the policy must leave alone.
func TestAnOperatorOfUpdatesMayWriteItsAnnotationsAndNothingElse(t *testing.T) {
	m := startManagement(t)
	m.make(t, fleet)
	m.make(t, "other")
	const robot = "system:serviceaccount:fleet:robot"
	m.role(t, "patches", "patch")
	m.role(t, "updates", "get", "update", "patch")
	m.role(t, "everything", "*")
	m.bind(t, "everywhere", "refit-system-refit-operator", "")
	m.bind(t, "here", "refit-system-refit-operator", fleet)
	m.bind(t, "system:serviceaccount:fleet:operator", "refit-system-refit-operator", "")
	m.bind(t, robot, "patches", "")
	m.bind(t, "controller", "updates", "")
	m.bind(t, "both", "refit-system-refit-operator", "")
	m.bind(t, "both", "updates", fleet)
	m.bind(t, "owner", "everything", "")

	everywhere := m.as(t, "everywhere")
	awaitPolicy(t, everywhere)

	for who, c := range map[string]client.Client{
		"who is bound everywhere": everywhere, "who is bound in a namespace": m.as(t, "here"), "an account": m.as(t, "system:serviceaccount:fleet:operator"),
	} {
		for _, ch := range changes() {
			err := try(t, c, fleet, ch)
			if ch.needed {
				require.NoError(t, err, "%s may: %s", who, ch.says)
				continue
			}
			require.True(t, apierrors.IsInvalid(err) || apierrors.IsForbidden(err), "%s may not: %s: %v", who, ch.says, err)
			require.ErrorContains(t, err, "those who operate updates may write", "%s: %s", who, ch.says)
		}
		for _, gvk := range []schema.GroupVersionKind{machines, clusters, updates} {
			require.True(t, apierrors.IsForbidden(c.Delete(t.Context(), object(gvk, fleet))))
			require.True(t, apierrors.IsForbidden(c.Create(t.Context(), object(gvk, fleet))))
			require.True(t, apierrors.IsForbidden(c.Update(t.Context(), object(gvk, fleet))))
			applied := object(gvk, fleet)
			applied.SetLabels(map[string]string{"mine": "x"})
			require.Error(t, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("mine"), client.ForceOwnership))
			require.True(t, apierrors.IsForbidden(c.SubResource("status").Patch(t.Context(), object(gvk, fleet),
				client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Failed"}}`)))))
		}
	}
	for gvk, annotation := range map[schema.GroupVersionKind]string{
		machines: refitv1.HoldAnnotation, clusters: refitv1.RestrictiveUntilAnnotation, updates: refitv1.RetryAnnotation,
	} {
		hold := object(gvk, fleet)
		hold.SetAnnotations(map[string]string{annotation: "true"})
		require.NoError(t, everywhere.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(hold), client.FieldOwner("ann"), client.ForceOwnership),
			"by server-side apply")
		require.NoError(t, m.as(t, "here").Patch(t.Context(), object(gvk, fleet), client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"annotations":{"`+annotation+`":null}}}`))), "what somebody else has applied")
	}
	require.True(t, apierrors.IsForbidden(try(t, m.as(t, "here"), "other", changes()[0])), "in another namespace")
	require.ErrorContains(t, try(t, m.as(t, "both"), "other", change{of: machines, patch: `{"metadata":{"labels":{"mine":"x"}}}`}), "those who operate updates")

	for who, c := range map[string]client.Client{
		"the administrator": m.admin, "an account with patch alone": m.as(t, robot), "a controller": m.as(t, "controller"),
		"refit": m.as(t, "system:serviceaccount:refit-system:refit"), "who may do everything": m.as(t, "owner"), "an operator who may update": m.as(t, "both"),
	} {
		for _, ch := range changes() {
			require.NoError(t, try(t, c, fleet, ch), "%s may: %s", who, ch.says)
		}
	}
}

// TestAnOperatorsCommandsWork runs what refit hold, release, pause, resume, retry, abandon and rollback run, with the rights of refit-system-refit-operator alone.
func TestAnOperatorsCommandsWork(t *testing.T) {
	m := startManagement(t)
	m.make(t, fleet)
	m.bind(t, "ann", "refit-system-refit-operator", fleet)
	key := client.ObjectKey{Namespace: fleet, Name: name}
	ann, ctx, now := m.as(t, "ann"), t.Context(), clock.RealClock{}
	awaitPolicy(t, ann)
	read := func() *clusterv1.Machine {
		machine := &clusterv1.Machine{}
		require.NoError(t, ann.Get(ctx, key, machine))
		return machine
	}
	machine := read()
	delete(machine.Annotations, refitv1.HoldAnnotation)
	require.NoError(t, m.admin.Update(ctx, machine))
	update := &refitv1.MachineUpdate{}
	require.NoError(t, m.admin.Get(ctx, key, update))
	update.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(machine, machines)}
	require.NoError(t, m.admin.Update(ctx, update))
	update.Status.Phase, update.Status.ObservedDigest = refitv1.PhaseFailed, update.Spec.Digest
	require.NoError(t, m.admin.Status().Update(ctx, update))

	holder := &admin.Holder{Client: ann, Clock: now, Out: t.Output(), Admin: "ann"}
	require.NoError(t, holder.Hold(ctx, read(), admin.HoldOptions{Reason: "disk swap"}))
	require.Equal(t, "ann", read().Annotations[lease.HoldByAnnotation])
	require.Contains(t, read().Annotations, holdHook)
	require.NoError(t, holder.Release(ctx, read(), false))
	require.NotContains(t, read().Annotations, holdHook)
	require.NotContains(t, read().Annotations, clusterv1.MachineSkipRemediationAnnotation)
	// What an update has added is not theirs to take away, and not what somebody else has.
	for key, value := range map[string]string{"capi-refit.dev/added": "u:" + clusterv1.MachineSkipRemediationAnnotation, clusterv1.MachineSkipRemediationAnnotation: "mine"} {
		kept := read()
		kept.Annotations[clusterv1.MachineSkipRemediationAnnotation] = "refit"
		kept.Annotations[key] = value
		require.NoError(t, m.admin.Update(ctx, kept))
		require.ErrorContains(t, try(t, ann, fleet, change{of: machines, patch: `{"metadata":{"annotations":{"` + clusterv1.MachineSkipRemediationAnnotation + `":null}}}`}), "those who operate updates may write")
		delete(kept.Annotations, key)
		delete(kept.Annotations, clusterv1.MachineSkipRemediationAnnotation)
		require.NoError(t, m.admin.Update(ctx, kept))
	}
	require.NotContains(t, read().Annotations, refitv1.HoldAnnotation)
	pauses := &admin.Pauses{Client: ann, Clock: now, Out: t.Output(), Admin: "ann"}
	for _, obj := range []client.Object{&clusterv1.Cluster{}, &clusterv1.Machine{}} {
		require.NoError(t, ann.Get(ctx, key, obj))
		require.NoError(t, pauses.Pause(ctx, obj, admin.PauseOptions{Reason: "incident"}))
		require.NoError(t, ann.Get(ctx, key, obj))
		require.Equal(t, "true", obj.GetAnnotations()[refitv1.RestrictiveUntilAnnotation])
		require.NoError(t, pauses.Resume(ctx, obj, false))
		require.NoError(t, ann.Get(ctx, key, obj))
		require.NotContains(t, obj.GetAnnotations(), refitv1.RestrictiveUntilAnnotation)
	}
	failures := &admin.Failures{Client: ann, Clock: now, Out: t.Output(), Admin: "ann"}
	require.NoError(t, failures.Retry(ctx, read()))
	require.NoError(t, failures.Abandon(ctx, read()))
	require.NoError(t, ann.Get(ctx, key, update))
	require.Contains(t, update.Annotations, refitv1.AbandonAnnotation)
	require.NotContains(t, update.Annotations, refitv1.RetryAnnotation)
	require.NoError(t, (&admin.Rollback{Client: ann, Clock: now, Out: t.Output(), Admin: "ann"}).Ask(ctx, read()))
	require.NoError(t, ann.Get(ctx, key, update))
	require.Contains(t, update.Annotations, refitv1.RollbackAnnotation)
	require.NotContains(t, update.Annotations, refitv1.AbandonAnnotation)
}
