package attack

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node/remote"
)

// Anybody who reaches the port of the hooks can call UpdateMachine.
func TestAForgedUpdateMachine(t *testing.T) {
	t.Run("with specs that nobody wants records nothing", func(t *testing.T) {
		m := newManaged(t)
		m.forge("garbage\n")
		require.Nil(t, m.update())
	})
	t.Run("with the right specs starts no work on a Machine that Cluster API has not marked", func(t *testing.T) {
		m := newManaged(t)
		m.forge("")
		m.reconcile()
		require.Nil(t, m.update())
		require.Empty(t, m.node.sent)
	})
	t.Run("does not disturb an update that has succeeded", func(t *testing.T) {
		m := newManaged(t)
		m.updated()
		before, sent := m.update(), len(m.node.sent)
		for _, content := range []string{"garbage\n", ""} {
			m.forge(content)
			m.reconcile()
		}
		require.Equal(t, before, m.update())
		require.Len(t, m.node.sent, sent)
		m.requireCompared()
	})
	t.Run("does not replace the specs of an update that is under way", func(t *testing.T) {
		m := newManaged(t)
		m.mark(true)
		require.Positive(t, m.call("").RetryAfterSeconds)
		before := m.update()
		m.forge("garbage\n")
		require.Equal(t, before, m.update())
		m.updated()
	})
	t.Run("does not bring back a failed one, nor an older one", func(t *testing.T) {
		m := newManaged(t)
		m.updated()
		m.want("two\n")
		m.mark(true)
		m.call("")
		m.reconcile()
		failed := m.update()
		failed.Status.Phase, failed.Status.Message = refitv1.PhaseFailed, "the node reports that it failed"
		require.NoError(t, m.Status().Update(t.Context(), failed))
		m.reconcile() // Ready follows
		failed = m.update()
		require.Equal(t, refitv1.PhaseFailed, failed.Status.Phase)
		for _, content := range []string{"garbage\n", "one\n"} {
			m.forge(content)
			m.reconcile()
		}
		require.Equal(t, failed.Spec, m.update().Spec)
		require.Equal(t, failed.Status, m.update().Status)
	})
	t.Run("of the moment in which Cluster API asked is withdrawn when it no longer does", func(t *testing.T) {
		m := newManaged(t)
		m.updated()
		m.want("two\n")
		m.mark(true)
		m.call("")
		m.mark(false)
		sent := len(m.node.sent)
		m.reconcile()
		require.Equal(t, refitv1.PhaseSucceeded, m.update().Status.Phase)
		require.Len(t, m.node.sent, sent)
		m.requireCompared()
	})
}

// requireCompared requires that the node is compared with what was applied to it when its turn comes.
func (m *managed) requireCompared() {
	m.t.Helper()
	checked := 0
	m.reconciler.Dialer = dialerFunc(func(context.Context, remote.Target) (remote.Conn, error) {
		checked++
		return nil, remote.ErrUnreachable
	})
	defer func() { m.reconciler.Dialer = m.node }()
	m.clock.Step(2 * time.Hour)
	_, err := m.drift.Reconcile(m.t.Context(), ctrl.Request{NamespacedName: machineKey})
	require.NoError(m.t, err)
	require.Equal(m.t, 1, checked)
}

// dialerFunc is a fake of the way to nodes.
type dialerFunc func(context.Context, remote.Target) (remote.Conn, error)

func (f dialerFunc) Dial(ctx context.Context, t remote.Target) (remote.Conn, error) { return f(ctx, t) }

// Whoever may retry updates may patch MachineUpdates and Machines.
func TestWhatWasTrustedOnFirstUse(t *testing.T) {
	for name, attack := range map[string]func(*managed){
		"is not forgotten with the owner of a MachineUpdate": func(m *managed) {
			mu := m.update()
			mu.OwnerReferences = nil
			require.NoError(t, m.Update(t.Context(), mu))
		},
		"is not forgotten with a MachineUpdate": func(m *managed) {
			require.NoError(t, m.Delete(t.Context(), m.update()))
		},
		"is not another key in the status of a MachineUpdate": func(m *managed) {
			mu := m.update()
			mu.Status.HostKey = string(ssh.MarshalAuthorizedKey(m.node.hostKey))
			require.NoError(t, m.Status().Update(t.Context(), mu))
		},
		"is not asked for at an address by annotation": func(m *managed) {
			require.NoError(t, m.Delete(t.Context(), m.update()))
			machine := m.machine()
			metav1.SetMetaDataAnnotation(&machine.ObjectMeta, refitv1.AddressAnnotation, "203.0.113.66:22")
			require.NoError(t, m.Update(t.Context(), machine))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManaged(t)
			m.updated()
			sent := len(m.node.sent)
			m.node.hostKey = newHostKey(t) // the attacker's
			attack(m)
			m.want("two\n")
			m.mark(true)
			for range 3 {
				require.Positive(t, m.call("").RetryAfterSeconds)
				m.reconcile()
			}
			require.Len(t, m.node.sent, sent, "the attacker was sent nothing")
			require.Equal(t, refitv1.PhaseWaiting, m.update().Status.Phase)
		})
	}
	t.Run("at an address by annotation is nothing", func(t *testing.T) {
		m := newManaged(t)
		machine := m.machine()
		metav1.SetMetaDataAnnotation(&machine.ObjectMeta, refitv1.AddressAnnotation, "203.0.113.66:22")
		require.NoError(t, m.Update(t.Context(), machine))
		m.mark(true)
		m.call("")
		m.reconcile()
		require.Empty(t, m.node.sent)
		require.Contains(t, m.call("").Message, "use Pinned or CertificateAuthority", "who waits is told what to do")
	})
}

// A tenant has a Machine point to where refit's pod reaches and they do not.
func TestAddressesOutsideTheRangesOfANodeAccessAreNotConnectedTo(t *testing.T) {
	m := newManaged(t)
	var access refitv1.NodeAccess
	require.NoError(t, m.Get(t.Context(), client.ObjectKey{Namespace: machineKey.Namespace, Name: "all"}, &access))
	access.Spec.AddressCIDRs = []string{"10.0.0.0/8"}
	require.NoError(t, m.Update(t.Context(), &access))
	m.mark(true)
	m.call("")
	m.reconcile()
	require.Empty(t, m.node.sent)
	require.Contains(t, m.call("").Message, "spec.addressCIDRs")
}
