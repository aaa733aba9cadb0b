package machineupdate

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/audit"
	"github.com/capi-refit/refit/internal/loginprobe"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/nodeaccess"
)

func TestWhatALoginFinds(t *testing.T) {
	for name, tc := range map[string]struct {
		arrange         func(*world)
		reason, message string
	}{
		"a node that lets refit in": {func(*world) {}, "", ""},
		"a node that is not reachable": {func(w *world) { w.node.dialErr = errRefused },
			refitv1.ReasonUnreachable, "connection refused"},
		"a wrong host key": {func(w *world) {
			w.node.dialErr = &remote.DialError{Attempts: []remote.Attempt{{Address: "192.0.2.1:22", Err: &remote.HostKeyError{Host: "192.0.2.1:22", Want: "X"}}}}
		}, refitv1.ReasonHostKey, "to have refit trust the next key"},
		"sudo that asks for a password": {func(w *world) {
			w.node.loginErr = &remote.CommandError{Status: 1, Stderr: "sudo: a password is required"}
			w.access(func(na *refitv1.NodeAccess) { na.Spec.SSH.Sudo = true })
		}, refitv1.ReasonNodeAccess, "sudo must not ask for a password"},
		"a user without a shell": {func(w *world) { w.node.loginErr = &remote.CommandError{Status: 1} },
			refitv1.ReasonNodeAccess, "can't run a shell"},
		"a key that can't be read": {func(w *world) { w.node.dialErr = errors.New("the private key can't be read") },
			refitv1.ReasonNodeAccess, "the private key can't be read"},
		"no Secret": {func(w *world) {
			w.access(func(na *refitv1.NodeAccess) { na.Spec.SSH.PrivateKeySecretRef.Name = "none" })
		}, refitv1.ReasonNodeAccess, "there is no Secret lab/none"},
		"a Machine without an address": {func(w *world) {
			w.machine(func(m *clusterv1.Machine) { m.Status.Addresses = nil })
		}, refitv1.ReasonNodeAccess, "no address"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.arrange(w)
			found, err := w.reconciler.TryLogin(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, tc.reason, found.Reason)
			require.Contains(t, found.Message, tc.message)
			require.NotContains(t, found.Message, "a key\n")
			require.True(t, apierrors.IsNotFound(w.Get(t.Context(), key, &refitv1.MachineUpdate{})), "a login asks for no update")
			for _, call := range w.node.calls {
				require.Equal(t, remote.VerbLogin, call, "no agent is run")
			}
		})
	}
}

// access edits the world's NodeAccess.
func (w *world) access(edit func(*refitv1.NodeAccess)) {
	var na refitv1.NodeAccess
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "all"}, &na))
	edit(&na)
	require.NoError(w.t, w.Update(w.t.Context(), &na))
}

func TestWhatKeepsALoginFromBeingTried(t *testing.T) {
	for name, arrange := range map[string]func(*world){
		"a paused Machine": func(w *world) {
			w.machine(func(m *clusterv1.Machine) { m.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
		},
		"a paused Cluster": func(w *world) {
			var c clusterv1.Cluster
			require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "c1"}, &c))
			c.Spec.Paused = ptr.To(true)
			require.NoError(w.t, w.Update(w.t.Context(), &c))
		},
		"no Cluster": func(w *world) {
			require.NoError(w.t, w.Delete(w.t.Context(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "c1"}}))
		},
		"a policy that holds all": func(w *world) {
			policy := nightly()
			policy.Spec.Hold = refitv1.HoldAll
			require.NoError(w.t, w.Create(w.t.Context(), policy))
			w.readPolicies()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			arrange(w)
			var m clusterv1.Machine
			require.NoError(t, w.Get(t.Context(), key, &m))
			require.True(t, w.reconciler.SkipsLogin(t.Context(), &m, nil))
			found, err := w.reconciler.TryLogin(t.Context(), key)
			require.Nil(t, found)
			require.True(t, err == nil || apierrors.IsNotFound(err), err)
			require.Empty(t, w.node.kept, "nobody connects")
		})
	}
}

// TestAPolicyLetsALoginBeTried in its window, and one that holds only what disturbs at all times.
func TestAPolicyLetsALoginBeTried(t *testing.T) {
	w := newWorld(t)
	policy := nightly()
	policy.Spec.Hold = refitv1.HoldAll
	require.NoError(t, w.Create(t.Context(), policy))
	w.readPolicies()
	w.clock.SetTime(time.Date(2026, 10, 3, 22, 30, 0, 0, time.UTC))
	var m clusterv1.Machine
	require.NoError(t, w.Get(t.Context(), key, &m))
	require.False(t, w.reconciler.SkipsLogin(t.Context(), &m, nil))

	w = newWorld(t)
	require.NoError(t, w.Create(t.Context(), nightly()))
	w.readPolicies()
	require.False(t, w.reconciler.SkipsLogin(t.Context(), &m, nil))
	found, err := w.reconciler.TryLogin(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, &loginprobe.Finding{}, found)
}

// TestALoginThatCantBeRecordedSaysNothingOfTheNode: nothing was sent there.
func TestALoginThatCantBeRecordedSaysNothingOfTheNode(t *testing.T) {
	w := newWorld(t)
	w.node.loginErr = audit.ErrNotRecorded
	found, err := w.reconciler.TryLogin(t.Context(), key)
	require.NoError(t, err)
	require.Nil(t, found)
}

// TestALoginIsNotToMachinesThatGo: nobody connects to where one was.
func TestALoginIsNotToMachinesThatGo(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.Delete(t.Context(), &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}))
	found, err := w.reconciler.TryLogin(t.Context(), key)
	require.NoError(t, err)
	require.Nil(t, found)
	require.Empty(t, w.node.kept)
}

// TestAnAPIServerThatDoesNotAnswerSaysNothingOfANode: what can't be read for a login, or recorded at it, is not the node's fault.
func TestAnAPIServerThatDoesNotAnswerSaysNothingOfANode(t *testing.T) {
	firstUse := func(na *refitv1.NodeAccess) {
		na.Spec.SSH.HostKeys = refitv1.HostKeys{Policy: refitv1.HostKeyTrustOnFirstUse}
	}
	for name, err := range map[string]error{
		"overloaded": apierrors.NewTooManyRequests("the server is overloaded", 1),
		"restarts":   apierrors.NewServiceUnavailable("etcdserver: leader changed"),
		"is away":    errors.New("connect: connection refused"),
	} {
		for what, of := range map[string]client.Object{"a Secret": &corev1.Secret{}, "a KnownHost": &refitv1.KnownHost{}} {
			t.Run(name+", for "+what, func(t *testing.T) {
				w := newWorld(t)
				if _, known := of.(*refitv1.KnownHost); known {
					w.access(firstUse)
				}
				away := interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
						if reflect.TypeOf(o) == reflect.TypeOf(of) {
							return err
						}
						return c.Get(ctx, k, o, opts...)
					},
				})
				w.reconciler.Live = RememberCRDs(away, w.clock)
				found, failed := w.reconciler.TryLogin(t.Context(), key)
				require.ErrorIs(t, failed, err)
				require.Nil(t, found)
				require.Empty(t, w.node.calls)
			})
		}
	}

	// The node has answered, and its host key can't be recorded.
	w := newWorld(t)
	w.node.dialErr = &remote.DialError{Attempts: []remote.Attempt{
		{Address: "192.0.2.1:22", Err: remote.ErrUnreachable}, {Address: "192.0.2.2:22", Err: nodeaccess.OfAPI(errors.New("create KnownHost: not now"))},
	}}
	found, err := w.reconciler.TryLogin(t.Context(), key)
	require.ErrorContains(t, err, "not now")
	require.Nil(t, found)

	// An update does not say so, either: what its wait says counts as a login.
	w.ask()
	_, err = w.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	require.ErrorContains(t, err, "not now")
	require.NotContains(t, []string{refitv1.ReasonUnreachable, refitv1.ReasonNodeAccess}, w.update().Status.Reason)
}
