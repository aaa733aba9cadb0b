package machineupdate

import (
	"context"
	"crypto/ed25519"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
)

// knownHost returns the KnownHost of the machine.
func (w *world) knownHost() *refitv1.KnownHost {
	var known refitv1.KnownHost
	require.NoError(w.t, w.Get(w.t.Context(), key, &known))
	return &known
}

// showingDialer is a fake of a node that shows a host key, as SSHDialer finds one, before commands are run there.
type showingDialer struct {
	*fakeNode
	key ssh.PublicKey
}

func (d *showingDialer) Dial(ctx context.Context, t remote.Target) (remote.Conn, error) {
	if err := t.HostKeys.Check("192.0.2.1:22", nil, d.key); err != nil {
		return nil, err
	}
	if err := t.HostKeys.Accepted(ctx, d.key); err != nil {
		return nil, err
	}
	return d.fakeNode.Dial(ctx, t)
}

func newHostKey(t *testing.T) ssh.PublicKey {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	key, err := ssh.NewPublicKey(public)
	require.NoError(t, err)
	return key
}

func line(key ssh.PublicKey) string { return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) }

// known is a world whose node shows a key, which is recorded.
func known(t *testing.T) (*world, *showingDialer) {
	w := newWorld(t)
	d := &showingDialer{fakeNode: w.node, key: newHostKey(t)}
	w.reconciler.Dialer = d
	w.succeed()
	require.Equal(t, line(d.key), w.knownHost().Spec.HostKey)
	require.Equal(t, ssh.FingerprintSHA256(d.key), w.knownHost().Spec.Fingerprint)
	require.Equal(t, types.UID("uid-1"), metav1.GetControllerOf(w.knownHost()).UID)
	require.Empty(t, w.update().Status.HostKey)
	return w, d
}

// again has the machine updated to other specs.
func (w *world) again() {
	w.change()
	w.mark(true)
	w.ask()
	w.ask()
	w.node.plans, w.node.applied, w.node.calls = []node.Plan{writeA, {}}, []node.Status{succeeded}, nil
	w.reconcile()
}

func TestTheFirstHostKeyIsKept(t *testing.T) {
	t.Run("when the MachineUpdate is deleted", func(t *testing.T) {
		w, d := known(t)
		require.NoError(t, w.Delete(t.Context(), w.update()))
		d.key = newHostKey(t)
		w.again()
		st := w.requireWaiting(refitv1.ReasonHostKey, "nothing was sent to it")
		require.Contains(t, st.Message, "kubectl delete knownhost -n lab m1")
		require.Empty(t, w.node.calls)

		require.NoError(t, w.Delete(t.Context(), w.knownHost()))
		w.reconcile()
		w.requirePhase(refitv1.PhaseSucceeded)
		require.Equal(t, line(d.key), w.knownHost().Spec.HostKey, "a person has accepted it")
	})
	t.Run("when the MachineUpdate is edited", func(t *testing.T) {
		w, d := known(t)
		mu := w.update()
		mu.OwnerReferences = nil
		require.NoError(t, w.Update(t.Context(), mu))
		d.key = newHostKey(t)
		w.again()
		w.reconcile()
		w.requireWaiting(refitv1.ReasonHostKey, "")
		require.Empty(t, w.node.calls)
	})
	t.Run("when the machine gets another UID, and its owner reference with it", func(t *testing.T) { // as by clusterctl move
		w, d := known(t)
		w.move("uid-2")
		host := w.knownHost()
		host.OwnerReferences[0].UID = "uid-2"
		require.NoError(t, w.Update(t.Context(), host))
		d.key = newHostKey(t)
		w.again()
		w.requireWaiting(refitv1.ReasonHostKey, "")
	})
	t.Run("and not for another Machine of the name", func(t *testing.T) {
		w, d := known(t)
		w.move("uid-2")
		d.key = newHostKey(t)
		w.again()
		w.requirePhase(refitv1.PhaseSucceeded)
		require.Equal(t, types.UID("uid-2"), metav1.GetControllerOf(w.knownHost()).UID)
		require.Equal(t, line(d.key), w.knownHost().Spec.HostKey)
	})
	for name, owners := range map[string][]metav1.OwnerReference{
		"without an owner":      nil,
		"of another Machine":    {*metav1.NewControllerRef(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m2", UID: "u"}}, clusterv1.GroupVersion.WithKind("Machine"))},
		"of something else":     {*metav1.NewControllerRef(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1", UID: "u"}}, refitv1.GroupVersion.WithKind("Machine"))},
		"not controlled by one": {{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m1", UID: "uid-1"}},
	} {
		t.Run("and one "+name+" is not used", func(t *testing.T) {
			w, _ := known(t)
			host := w.knownHost()
			host.OwnerReferences = owners
			require.NoError(t, w.Update(t.Context(), host))
			w.again()
			w.requireWaiting(refitv1.ReasonHostKey, "kubectl delete knownhost -n lab m1")
			require.Empty(t, w.node.calls)
			require.Equal(t, host.Spec, w.knownHost().Spec)
		})
	}
}

// move gives the machine another UID.
func (w *world) move(uid types.UID) {
	m := w.currentMachine().DeepCopy()
	require.NoError(w.t, w.Delete(w.t.Context(), w.currentMachine()))
	m.UID, m.ResourceVersion = uid, ""
	require.NoError(w.t, w.Create(w.t.Context(), m))
}

func TestAHostKeyOfAnEarlierVersionIsMoved(t *testing.T) {
	w := newWorld(t)
	d := &showingDialer{fakeNode: w.node, key: newHostKey(t)}
	w.reconciler.Dialer = d
	w.ask()
	mu := w.update()
	mu.Status.HostKey = line(newHostKey(t))
	require.NoError(t, w.Status().Update(t.Context(), mu))
	w.reconcile()
	w.requireWaiting(refitv1.ReasonHostKey, "expected ssh-ed25519")
	require.Equal(t, mu.Status.HostKey, w.knownHost().Spec.HostKey)
	require.Empty(t, w.update().Status.HostKey)
	require.Empty(t, w.node.calls)

	require.NoError(t, w.Delete(t.Context(), w.knownHost()))
	w.node.plans, w.node.applied = []node.Plan{writeA, {}}, []node.Status{succeeded}
	w.reconcile()
	w.requirePhase(refitv1.PhaseSucceeded)
	require.Equal(t, line(d.key), w.knownHost().Spec.HostKey, "it is not found again")
}

// Of two that see a node for the first time, one is believed.
func TestTwoRecordAHostKey(t *testing.T) {
	w := newWorld(t)
	w.ask()
	u := &update{Reconciler: w.reconciler, mu: w.update()}
	m := w.currentMachine()
	for range 2 {
		recorded, err := u.knownHost(t.Context(), m)
		require.NoError(t, err)
		require.Empty(t, recorded)
	}
	first := line(newHostKey(t))
	require.NoError(t, u.knownHosts().Record(t.Context(), m, first))
	require.True(t, apierrors.IsAlreadyExists(u.knownHosts().Record(t.Context(), m, line(newHostKey(t)))))
	require.Equal(t, first, w.knownHost().Spec.HostKey)
}

func TestAnAddressByAnnotationIsNotTrustedOnFirstUse(t *testing.T) {
	w := newWorld(t)
	w.machine(func(m *clusterv1.Machine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, refitv1.AddressAnnotation, "203.0.113.66")
	})
	w.ask()
	w.reconcile()
	w.requireWaiting(refitv1.ReasonNodeAccess, "Pinned or CertificateAuthority")
	require.Empty(t, w.node.calls)
}

func TestANodeOutsideOfTheRangesIsNotConnectedTo(t *testing.T) {
	w := newWorld(t)
	var access refitv1.NodeAccess
	require.NoError(t, w.Get(t.Context(), types.NamespacedName{Namespace: key.Namespace, Name: "all"}, &access))
	access.Spec.AddressCIDRs = []string{"10.0.0.0/8"}
	require.NoError(t, w.Update(t.Context(), &access))
	w.ask()
	w.reconcile()
	w.requireWaiting(refitv1.ReasonNodeAccess, "spec.addressCIDRs")
	require.Empty(t, w.node.calls)
}
