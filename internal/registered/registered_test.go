package registered

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/registered/registeredtest"
)

func handler(hook, name string) string {
	return fmt.Sprintf(`{"name": %q, "requestHook": {"apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1", "hook": %q}}`, name, hook)
}

func TestDiscovery(t *testing.T) {
	update, can := handler(UpdateMachine, "update-machine"), handler(CanUpdateMachine, "can-update-machine")
	for name, tc := range map[string]struct {
		handlers string
		named    refitv1.UpdaterHandlers
		says     string
	}{
		"all that it takes":       {update + "," + can, refitv1.UpdaterHandlers{}, ""},
		"nothing":                 {"", refitv1.UpdaterHandlers{}, "it has no handler for UpdateMachine"},
		"nobody says what it can": {update, refitv1.UpdaterHandlers{}, "it has no handler for UpdateMachine, or none for CanUpdateMachine"},
		"two of them":             {update + "," + can + "," + handler(UpdateMachine, "other"), refitv1.UpdaterHandlers{}, "it has 2 handlers for UpdateMachine; say in spec.handlers"},
		"one of two is named":     {update + "," + can + "," + handler(UpdateMachine, "other"), refitv1.UpdaterHandlers{UpdateMachine: "update-machine"}, ""},
		"a name that is not":      {update + "," + can, refitv1.UpdaterHandlers{UpdateMachine: "other"}, `it has no handler "other" for UpdateMachine`},
		"a name that is none":     {update + "," + handler(CanUpdateMachine, "../x"), refitv1.UpdaterHandlers{}, "has a name that is none"},
	} {
		t.Run(name, func(t *testing.T) {
			u := registeredtest.Extension(t, "x", func(string, []byte) any { return `{"status": "Success", "handlers": [` + tc.handlers + `]}` })
			u.Status, u.Spec.Handlers = refitv1.UpdaterRegistrationStatus{}, tc.named
			c := managementtest.New(u)
			d := &Discovery{Client: c, Registry: &Registry{Client: c, Live: c}}
			_, err := d.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "x"}})
			require.NoError(t, err)
			var got refitv1.UpdaterRegistration
			require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "x"}, &got))
			ready := meta.FindStatusCondition(got.Status.Conditions, refitv1.UpdaterReady)
			require.NotNil(t, ready)
			if tc.says != "" {
				require.Equal(t, metav1.ConditionFalse, ready.Status)
				require.Contains(t, ready.Message, tc.says)
				return
			}
			require.Equal(t, metav1.ConditionTrue, ready.Status, ready.Message)
			require.Equal(t, refitv1.UpdaterHandlers{CanUpdateMachine: "can-update-machine", UpdateMachine: "update-machine"}, got.Status.Handlers)
		})
	}
}

// TestHandlersStayWhileAnExtensionIsAway has one that restarts.
func TestHandlersStayWhileAnExtensionIsAway(t *testing.T) {
	u := registeredtest.Extension(t, "x", func(string, []byte) any { return nil })
	handlers := u.Status.Handlers
	c := managementtest.New(u)
	d := &Discovery{Client: c, Registry: &Registry{Client: c, Live: c}}
	_, err := d.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "x"}})
	require.NoError(t, err)
	var got refitv1.UpdaterRegistration
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "x"}, &got))
	require.True(t, meta.IsStatusConditionFalse(got.Status.Conditions, refitv1.UpdaterReady))
	require.Equal(t, handlers, got.Status.Handlers)
}

// TestHandlersStayThatDiscoveryLeavesOut has an extension that starts, of which not all answers yet. Another spec is discovered again.
func TestHandlersStayThatDiscoveryLeavesOut(t *testing.T) {
	found := handler(UpdateMachine, "update") + "," + handler(CanUpdateMachineSet, "can-set")
	u := registeredtest.Extension(t, "x", func(string, []byte) any { return `{"status": "Success", "handlers": [` + found + `]}` })
	c := managementtest.New(u)
	d := &Discovery{Client: c, Registry: &Registry{Client: c, Live: c}}
	discovered := func() *refitv1.UpdaterRegistration {
		_, err := d.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "x"}})
		require.NoError(t, err)
		var got refitv1.UpdaterRegistration
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "x"}, &got))
		return &got
	}
	got := discovered()
	require.Equal(t, "can", got.Status.Handlers.CanUpdateMachine)
	ready := meta.FindStatusCondition(got.Status.Conditions, refitv1.UpdaterReady)
	require.Equal(t, metav1.ConditionFalse, ready.Status)
	require.Contains(t, ready.Message, "a handler for CanUpdateMachine and names it no more")

	got.Generation++
	require.NoError(t, c.Update(t.Context(), got))
	got = discovered()
	require.Equal(t, refitv1.UpdaterHandlers{CanUpdateMachineSet: "can-set", UpdateMachine: "update"}, got.Status.Handlers)
	require.True(t, meta.IsStatusConditionTrue(got.Status.Conditions, refitv1.UpdaterReady))
}

func TestSelectors(t *testing.T) {
	of := func(key, value string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	s := Subject{Subject: inplace.Subject{Namespace: "lab", Cluster: "c1", Labels: map[string]string{"pool": "a"}}, Infrastructure: "DevMachine"}
	s.Bootstrap.Kind = "KubeadmConfig"
	for name, tc := range map[string]struct {
		spec refitv1.UpdaterRegistrationSpec
		want bool
	}{
		"all":                     {refitv1.UpdaterRegistrationSpec{}, true},
		"the machine":             {refitv1.UpdaterRegistrationSpec{MachineSelector: of("pool", "a")}, true},
		"another machine":         {refitv1.UpdaterRegistrationSpec{MachineSelector: of("pool", "b")}, false},
		"the cluster":             {refitv1.UpdaterRegistrationSpec{ClusterSelector: of("tier", "prod")}, true},
		"another cluster":         {refitv1.UpdaterRegistrationSpec{ClusterSelector: of("tier", "test")}, false},
		"the infrastructure":      {refitv1.UpdaterRegistrationSpec{InfrastructureKinds: []string{"DevMachine"}}, true},
		"other infrastructure":    {refitv1.UpdaterRegistrationSpec{InfrastructureKinds: []string{"Metal3Machine"}}, false},
		"the bootstrap provider":  {refitv1.UpdaterRegistrationSpec{BootstrapKinds: []string{"KubeadmConfig"}}, true},
		"other bootstrap configs": {refitv1.UpdaterRegistrationSpec{BootstrapKinds: []string{"RKE2Config"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := managementtest.New(managementtest.Cluster("lab", "c1", map[string]string{"tier": "prod"}))
			got, err := (&Registry{Client: c, Live: c}).selects(t.Context(), &tc.spec, s)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

// TestASelectorThatCannotBeRead is one of a registration whose other selectors say for which machines that counts.
func TestASelectorThatCannotBeRead(t *testing.T) {
	wrong := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "in", Values: []string{"gpu"}}}}
	of := func(key, value string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	s := Subject{Subject: inplace.Subject{Namespace: "lab", Cluster: "c1", Labels: map[string]string{"pool": "a"}}}
	for name, tc := range map[string]struct {
		spec  refitv1.UpdaterRegistrationSpec
		field string // that is named; empty: it is for another machine
	}{
		"of machines":                      {refitv1.UpdaterRegistrationSpec{MachineSelector: wrong}, "spec.machineSelector"},
		"of machines of another cluster":   {refitv1.UpdaterRegistrationSpec{MachineSelector: wrong, ClusterSelector: of("tier", "test")}, ""},
		"of machines of another namespace": {refitv1.UpdaterRegistrationSpec{MachineSelector: wrong, NamespaceSelector: of("team", "b")}, ""},
		"of machines of this namespace":    {refitv1.UpdaterRegistrationSpec{MachineSelector: wrong, NamespaceSelector: of("team", "a")}, "spec.machineSelector"},
		"of clusters":                      {refitv1.UpdaterRegistrationSpec{ClusterSelector: wrong}, "spec.clusterSelector"},
		"of clusters, of another machine":  {refitv1.UpdaterRegistrationSpec{ClusterSelector: wrong, MachineSelector: of("pool", "b")}, ""},
		"of clusters, elsewhere":           {refitv1.UpdaterRegistrationSpec{ClusterSelector: wrong, NamespaceSelector: of("team", "b")}, ""},
		"of namespaces":                    {refitv1.UpdaterRegistrationSpec{NamespaceSelector: wrong}, "spec.namespaceSelector"},
	} {
		t.Run(name, func(t *testing.T) {
			u := registeredtest.Extension(t, "x", func(string, []byte) any {
				return `{"status": "Success", "handlers": [` + handler(UpdateMachine, "update") + "," + handler(CanUpdateMachine, "can") + `]}`
			})
			tc.spec.ClientConfig, tc.spec.TimeoutSeconds = u.Spec.ClientConfig, u.Spec.TimeoutSeconds
			u.Spec = tc.spec
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lab", Labels: map[string]string{"team": "a"}}}
			c := managementtest.New(u, namespace, managementtest.Cluster("lab", "c1", map[string]string{"tier": "prod"}))
			r := &Registry{Client: c, Live: c}
			names, err := r.Names(t.Context(), s)
			require.Empty(t, names)
			if tc.field == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "UpdaterRegistration x: "+tc.field)
			}

			_, err = (&Discovery{Client: c, Registry: r}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "x"}})
			require.NoError(t, err)
			require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "x"}, u))
			ready := meta.FindStatusCondition(u.Status.Conditions, refitv1.UpdaterReady)
			require.Equal(t, metav1.ConditionFalse, ready.Status)
			require.Equal(t, "InvalidSelector", ready.Reason)
			require.Contains(t, ready.Message, "Selector: ")
			require.Equal(t, "update", u.Status.Handlers.UpdateMachine, "it is discovered all the same")
		})
	}
}

func TestUpdateSaysHowItStands(t *testing.T) {
	for name, tc := range map[string]struct {
		answer string
		done   bool
		says   string
	}{
		"it is done":      {`{"status": "Success", "message": "all is well"}`, true, ""},
		"it goes on":      {`{"status": "Success", "message": "half", "retryAfterSeconds": 7}`, false, ""},
		"it fails":        {`{"status": "Failure", "message": "no memory"}`, false, "UpdaterRegistration x: it answers UpdateMachine with Failure: no memory"},
		"a negative time": {`{"status": "Success", "retryAfterSeconds": -1}`, false, "negative retryAfterSeconds"},
		"another answer":  {`{"kind": "DiscoveryResponse", "status": "Success"}`, false, `it answers UpdateMachine with "DiscoveryResponse"`},
	} {
		t.Run(name, func(t *testing.T) {
			c := managementtest.New(registeredtest.Extension(t, "x", func(string, []byte) any { return tc.answer }))
			remotes, err := (&Registry{Client: c, Live: c}).For(t.Context(), Subject{})
			require.NoError(t, err)
			require.Len(t, remotes, 1)
			p, err := remotes[0].Update(t.Context(), []byte(`{}`))
			if tc.says != "" {
				require.ErrorContains(t, err, tc.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.done, p.Done)
		})
	}
}

// TestTheBasisHasWhatSelectorsLookAt so that nothing that was decided is remembered for a machine for which another updater is.
func TestTheBasisHasWhatSelectorsLookAt(t *testing.T) {
	s := Subject{Subject: inplace.Subject{Namespace: "lab", Cluster: "c1", Labels: map[string]string{"pool": "a"}}}
	gpu := metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "yes"}}
	for name, spec := range map[string]refitv1.UpdaterRegistrationSpec{"Cluster": {ClusterSelector: gpu}, "Namespace": {NamespaceSelector: gpu}, "Machine": {MachineSelector: gpu}} {
		t.Run(name, func(t *testing.T) {
			namespace, cluster := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lab"}}, managementtest.Cluster("lab", "c1", nil)
			c := managementtest.New(&refitv1.UpdaterRegistration{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: spec}, namespace, cluster)
			basis := func(labels map[string]string) string {
				s := s
				switch name {
				case "Machine":
					s.Labels = labels
				case "Cluster":
					cluster.Labels = labels
					require.NoError(t, c.Update(t.Context(), cluster))
				default:
					namespace.Labels = labels
					require.NoError(t, c.Update(t.Context(), namespace))
				}
				b, err := (&Registry{Client: c, Live: c}).Basis(t.Context(), s)
				require.NoError(t, err)
				return b
			}
			before := basis(nil)
			require.NotEqual(t, before, basis(map[string]string{"gpu": "yes"}))
			require.Equal(t, before, basis(map[string]string{"team": "b"}), "nothing looks at it")
		})
	}
}
