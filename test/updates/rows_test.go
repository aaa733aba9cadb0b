//go:build e2e

package updates

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/kubeadmconfig/fields"
)

// elsewhere are fields whose changes a Debian machine alone can't show, and where they are shown.
var elsewhere = map[string]string{
	"nodeRegistration.taints": "they are on the Node: test/e2e, users, time servers, labels and taints come, change and go",
	// Without patches of the kubelet's configuration in them, one directory is as good as the other.
	"joinConfiguration.patches": "it takes a kubeadm: kubelet.TestPatchesThatComeAndGo",
}

// TestEveryRow holds docs/fields.md to a machine: for each change of each field that is made in place on a worker, what the
// hooks are answered is what the machine then plans and does. The static pods of control planes take kubeadm: test/e2e has them.
func TestEveryRow(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	// Rows restart a unit more often than systemd lets a unit start in so short a time, if it has no limit of its own.
	m.sh(`mkdir -p /etc/systemd/system/service.d && printf '[Unit]\nStartLimitIntervalSec=0\n' >/etc/systemd/system/service.d/starts.conf && systemctl daemon-reload`)
	// As much of a kubeadm node as the kubelet's arguments take.
	m.sh(`mkdir -p /var/lib/kubelet && echo 'KUBELET_KUBEADM_ARGS="--pod-infra-container-image=pause"' >/var/lib/kubelet/kubeadm-flags.env`)
	m.sh(`printf '[Service]\nExecStart=/bin/sleep infinity\n' >/etc/systemd/system/kubelet.service && systemctl daemon-reload && systemctl start kubelet.service`)
	shown := 0
	for _, f := range fields.All() {
		for _, c := range f.Changes {
			m.run(f.Path+" "+string(c.Operation), func(t *testing.T) {
				for path, where := range elsewhere {
					if strings.Contains(f.Path, path) {
						t.Skip(where)
					}
				}
				if m.row(c.Of(fields.Worker)) {
					shown++
				}
			})
		}
	}
	require.Greater(t, shown, 20, "changes that the machine was to show")
}

// row makes a change that is claimed, and reports whether it took the machine anything.
func (m *machine) row(c fields.Change) bool {
	m.t.Helper()
	oc, differs := c.ObjectChange()
	require.True(m.t, differs)
	decision, err := m.registry().Decide(m.t.Context(), fieldset.Change{oc})
	require.NoError(m.t, err)
	if !decision.InPlace() {
		return false // the machine is replaced
	}
	var lists [][]disruption.Action
	for _, v := range decision {
		lists = append(lists, v.Actions)
	}
	claimed := names(disruption.Merge(lists...))
	before, after := m.resources(c.Current), m.resources(c.Desired)
	if same, err := json.Marshal(before); err == nil {
		desired, err := json.Marshal(after)
		require.NoError(m.t, err)
		if string(same) == string(desired) {
			require.Equal(m.t, []string{"None"}, claimed, "the machine is asked for nothing else than before")
			return false
		}
	}
	m.bring(c.Current)
	plan, status := m.bring(c.Desired)
	require.Equal(m.t, claimed, atLeastNone(plan.Actions), "the plan")
	require.Equal(m.t, claimed, atLeastNone(status.Actions), "what was done")
	return true
}

func atLeastNone(actions []disruption.Action) []string {
	if len(actions) == 0 {
		return []string{"None"}
	}
	return names(actions)
}

func (m *machine) resources(spec map[string]any) []node.Resource {
	m.t.Helper()
	rs, err := m.registry().Desire(updaters.Desired{
		BootstrapConfig: fieldset.Spec{APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig", Value: spec},
		Secret: func(string, string) ([]byte, error) { // good as a password and as a file
			return []byte("$6$salt$IxDD3jeSOb5eB1CX5LBsqZFVkJdido3OUILO5Ifz5iwMuTS4XMS130MTSuDDl3aCI6WouIL9AjRbLCelDCy.g."), nil
		},
	})
	require.NoError(m.t, err)
	return rs
}

// bring has the machine show a spec.
func (m *machine) bring(spec map[string]any) (node.Plan, node.Status) {
	m.t.Helper()
	req := m.request("{}")
	text, err := json.Marshal(spec)
	require.NoError(m.t, err)
	req.Digest = digest(string(text))
	req.Resources, req.OnConflict = m.resources(spec), node.Overwrite
	plan, err := m.agent.Plan(m.t.Context(), req)
	require.NoError(m.t, err)
	require.Empty(m.t, plan.Blocked)
	status := m.apply(req)
	require.Equal(m.t, node.Succeeded, status.State, status.Message)
	return plan, status
}
