package machineupdate

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/test/program"
)

// buildAgents builds the agent for this machine.
func buildAgents(t *testing.T) *remote.Agents {
	t.Helper()
	dir := t.TempDir()
	agent, err := program.Build(t.Context(), "github.com/capi-refit/refit/cmd/refit-node")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "refit-node-linux-"+runtime.GOARCH), agent, 0o600))
	agents, err := remote.LoadAgents(dir)
	require.NoError(t, err)
	return agents
}

// TestOverSSH updates a stand-in for a node, through a jump host, with the real agent and over real SSH. The node's key is
// trusted on first use, and then a key that is another one is not.
func TestOverSSH(t *testing.T) {
	key, err := nodetest.NewKey()
	require.NoError(t, err)
	start := func(o nodetest.Options) *nodetest.Node {
		o.UserKey = key
		n, err := nodetest.Start(o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, n.Close()) })
		return n
	}
	n, jump := start(nodetest.Options{Name: "node"}), start(nodetest.Options{Name: "jump", Forward: true})

	w := newWorld(t)
	w.reconciler.Dialer, w.reconciler.Agents = remote.SSHDialer{}, buildAgents(t)
	w.reachThrough(n, jump, key)
	require.False(t, w.ask())
	w.reconcile()
	mu := w.update()
	require.Equal(t, refitv1.PhaseSucceeded, mu.Status.Phase, mu.Status.Message)
	require.Equal(t, strings.TrimSpace(n.HostKey()), w.knownHost().Spec.HostKey, "the key of the first contact is recorded")
	content, err := os.ReadFile(filepath.Join(n.Root(), "etc/app/a"))
	require.NoError(t, err)
	require.Equal(t, secretContent+"\n", string(content))
	require.True(t, w.ask())
	require.Positive(t, jump.Connections())

	commands := len(n.Commands())
	require.NoError(t, n.ChangeHostKey())
	w.change()
	w.ask()
	w.reconcile()
	require.Equal(t, refitv1.ReasonHostKey, w.update().Status.Reason)
	require.Len(t, n.Commands(), commands, "nothing was sent")
}

// reachThrough tells the world to reach the machine's node through a jump host.
func (w *world) reachThrough(n, jump *nodetest.Node, key []byte) {
	for name, data := range map[string]map[string][]byte{"node-key": {"ssh-privatekey": key}, "jump": {"known_hosts": jump.KnownHosts()}} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name}, Data: data}
		require.NoError(w.t, w.Create(w.t.Context(), secret))
	}
	var m clusterv1.Machine
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: "lab", Name: "m1"}, &m))
	m.Status.Addresses = clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalIP, Address: n.Address().Host}}
	require.NoError(w.t, w.Update(w.t.Context(), &m))
	var access refitv1.NodeAccess
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: "lab", Name: "all"}, &access))
	access.Spec.AgentDirectory = "bin-refit"
	access.Spec.SSH.User, access.Spec.SSH.Port = n.User(), int32(n.Address().Port)
	access.Spec.SSH.PrivateKeySecretRef = refitv1.SecretKeyReference{Name: "node-key"}
	access.Spec.SSH.JumpHost = &refitv1.JumpHost{
		Address: jump.Address().Host, Port: int32(jump.Address().Port), User: jump.User(),
		PrivateKeySecretRef: refitv1.SecretKeyReference{Name: "node-key"},
		HostKeys:            refitv1.HostKeys{Policy: refitv1.HostKeyPinned, SecretRef: &refitv1.SecretKeyReference{Name: "jump"}},
	}
	require.NoError(w.t, w.Update(w.t.Context(), &access))
}
