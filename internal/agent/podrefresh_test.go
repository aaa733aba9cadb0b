package agent

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/container/containertest"
	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

const (
	auditPolicy = "/etc/kubernetes/audit-policy.yaml"
	auditedPod  = "/etc/kubernetes/manifests/a.yaml"
	mountsAudit = "    volumeMounts: [{name: v, mountPath: /v}]\n  volumes: [{name: v, hostPath: {path: " + auditPolicy + "}}]\n"
)

// auditNode is a node of which one static pod mounts the audit policy.
func auditNode(t *testing.T) (*testNode, *containertest.Runtime) {
	s := staticpodtest.NewNode(t)
	n := layOut(t, s.Dir)
	n.put("/var/lib/kubelet/config.yaml", "staticPodPath: /etc/kubernetes/manifests\nhealthzPort: 0\ncontainerRuntimeEndpoint: unix://"+containertest.Socket+"\n")
	n.put(auditedPod, staticpodtest.Pod("a", "a:1")+mountsAudit)
	n.put(auditPolicy, "old")
	r := containertest.Serve(t, s.Dir, func(string) string { return n.content(auditPolicy) }, "a", "b")
	s.Set(func(s *staticpodtest.Node) { s.Containers = r.Statuses })
	return n, r
}

func auditRequest(token int64, pathsAndContents ...string) node.Request {
	req := request(token, pathsAndContents...)
	req.Rules = disruption.BuiltinRules()
	return req
}

// TestARunRestartsWhatMountsItsFiles: it was Succeeded while the API server ran on with the old audit policy.
func TestARunRestartsWhatMountsItsFiles(t *testing.T) {
	n, r := auditNode(t)
	manifest := n.content(auditedPod)
	require.Equal(t, "changed 1 file, then: StaticPodRefresh", n.succeed(auditRequest(1, auditPolicy, "new")).Message)
	require.Equal(t, "new", r.Read("a"))
	require.Equal(t, []string{"a-1"}, r.Stops())

	r.Fail("bad")
	n.useClock(&failsOnce{fails: func() bool { return n.content(auditPolicy) == "bad" }})
	status := n.fail(auditRequest(2, auditPolicy, "bad"))
	require.Contains(t, status.Message, "StaticPodRefresh failed: static pod a, which mounts what has changed, could not be restarted: container a is not ready")
	require.True(t, status.RolledBack, status.Message)
	require.Equal(t, "new", n.content(auditPolicy))
	require.Equal(t, "new", r.Read("a"), "and runs with what was put back")
	require.Equal(t, manifest, n.content(auditedPod), "byte for byte")
}

// failsOnce is a Clock for which there is no time left as long as something is wrong.
type failsOnce struct {
	testClock
	fails func() bool
	left  int
}

func (c *failsOnce) Wait(ctx context.Context, d time.Duration) error {
	if c.left++; c.fails() && c.left > 10 {
		return context.DeadlineExceeded
	}
	return c.testClock.Wait(ctx, d)
}

func TestAFileThatNoStaticPodMounts(t *testing.T) {
	n, r := auditNode(t)
	const other = "/etc/kubernetes/admission/config.yaml"
	plan := n.plan(auditRequest(1, other, "x"))
	require.Len(t, plan.Blocked, 1)
	require.Contains(t, plan.Blocked[0].Reason, "no static pod of the node mounts "+other)
	require.Contains(t, n.refuse(auditRequest(1, other, "x"), node.ReasonBlocked), "no StaticPodRefresh brings a change of it into effect")
	require.Equal(t, "(missing)", n.content(other))
	require.Empty(t, r.Stops())

	manifest := staticpodtest.Pod("b", "b:1") + "    volumeMounts: [{name: v, mountPath: /v}]\n  volumes: [{name: v, hostPath: {path: /etc/kubernetes/admission}}]\n"
	require.Empty(t, n.plan(auditRequest(1, other, "x", staticpod.Dir+"/b.yaml", manifest)).Blocked, "one does when the plan is done")
	req := auditRequest(1, other, "x")
	req.Resources = append(req.Resources, node.Resource{ControlPlane: &node.ControlPlane{APIServer: node.Component{
		ExtraVolumes: []node.ExtraVolume{{Name: "v", HostPath: "/etc/kubernetes/admission", MountPath: "/v"}},
	}}})
	for _, p := range n.plan(req).Blocked {
		require.NotEqual(t, other, p.Path, "kubeadm has one mount it in the same run: %s", p.Reason)
	}
}

// TestRowsThatStaticPodsRead has each file that the built-in table has for static pods come and go: the pod that mounts it, or the directory
// that it is in, is started with it, and without it.
func TestRowsThatStaticPodsRead(t *testing.T) {
	for path, mounts := range map[string]string{
		"/etc/kubernetes/audit-policy.yaml":     "/etc/kubernetes/audit-policy.yaml",
		"/etc/kubernetes/audit/policy.yaml":     "/etc/kubernetes/audit",
		"/etc/kubernetes/admission-config.yaml": "/etc/kubernetes/admission-config.yaml",
		"/etc/kubernetes/admission/config.yaml": "/etc/kubernetes/admission",
	} {
		t.Run(path, func(t *testing.T) {
			s := staticpodtest.NewNode(t)
			n := layOut(t, s.Dir)
			n.put("/var/lib/kubelet/config.yaml", "staticPodPath: /etc/kubernetes/manifests\nhealthzPort: 0\ncontainerRuntimeEndpoint: unix://"+containertest.Socket+"\n")
			n.put(auditedPod, staticpodtest.Pod("a", "a:1")+
				"    volumeMounts: [{name: v, mountPath: /v}]\n  volumes: [{name: v, hostPath: {path: "+mounts+"}}]\n")
			r := containertest.Serve(t, s.Dir, func(string) string { return n.content(path) }, "a")
			s.Set(func(s *staticpodtest.Node) { s.Containers = r.Statuses })
			require.Equal(t, "changed 1 file, then: StaticPodRefresh", n.succeed(auditRequest(1, path, "new")).Message)
			require.Equal(t, "new", r.Read("a"))
			n.succeed(auditRequest(2))
			require.Equal(t, "(missing)", r.Read("a"))
			require.Equal(t, []string{"a-1", "a-2"}, r.Stops())
		})
	}
	t.Run(staticpod.Dir, func(t *testing.T) {
		n, _ := auditNode(t)
		runs := func() bool {
			note, err := staticpod.Observe(t.Context(), n.agent.host())
			require.NoError(t, err)
			return note[staticpod.Dir+"/b.yaml"].Ready
		}
		require.Equal(t, "changed 1 file, then: StaticPodRefresh", n.succeed(auditRequest(1, staticpod.Dir+"/b.yaml", staticpodtest.Pod("b", "b:1"))).Message)
		require.True(t, runs())
		n.succeed(auditRequest(2))
		require.False(t, runs())
	})
}
