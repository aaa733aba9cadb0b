package podrestart_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/container/containertest"
	"github.com/capi-refit/refit/internal/agent/podrestart"
	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
)

const audit = "/etc/kubernetes/audit/policy.yaml"

// world is a node with two static pods that mount the audit policy, one of which is the API server, and one that does not.
type world struct {
	*staticpodtest.Node
	runtime *containertest.Runtime
	work    podrestart.Work
	note    staticpod.Note
	// saves is how many more times progress can be written down; negative: always.
	saves int
}

var errKilled = errors.New("killed")

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Node: staticpodtest.NewNode(t), saves: -1}
	w.Put("/var/lib/kubelet/config.yaml", "staticPodPath: /etc/kubernetes/manifests\ncontainerRuntimeEndpoint: unix://"+containertest.Socket+"\n")
	w.Put(audit, "old")
	at, err := url.Parse(w.API.URL)
	require.NoError(t, err)
	mounts := func(path string) string {
		return "    volumeMounts: [{name: v, mountPath: /v}]\n  volumes: [{name: v, hostPath: {path: " + path + "}}]\n"
	}
	w.Put(staticpod.Dir+"/kube-apiserver.yaml", staticpodtest.Pod("kube-apiserver", "registry.k8s.io/kube-apiserver:v1.36.0",
		"kube-apiserver", "--advertise-address=127.0.0.1", "--secure-port="+at.Port())+mounts("/etc/kubernetes/audit"))
	w.Put(staticpod.Dir+"/b.yaml", staticpodtest.Pod("b", "b:1")+mounts(audit))
	w.Put(staticpod.Dir+"/c.yaml", staticpodtest.Pod("c", "c:1")+mounts("/etc/kubernetes/audit2"))
	w.runtime = containertest.Serve(t, w.Dir, func(string) string { return w.Get(audit) }, "kube-apiserver", "b", "c", "etcd")
	w.Set(func(n *staticpodtest.Node) { n.Containers = w.runtime.Statuses })
	w.note, err = staticpod.Observe(t.Context(), w.Host)
	require.NoError(t, err)
	w.work = podrestart.Work{Paths: []string{audit}}
	return w
}

// restart does it as a process would that may be killed when it writes down how far it is.
func (w *world) restart() error {
	return podrestart.Restarter{Host: w.Host, Save: func(now podrestart.Work) error {
		if w.saves == 0 {
			return errKilled
		}
		w.saves--
		data, err := json.Marshal(now)
		require.NoError(w, err)
		w.work = podrestart.Work{}
		return json.Unmarshal(data, &w.work)
	}}.Restart(w.Context(), w.work, w.note)
}

func (w *world) manifests() (all []string) {
	for _, name := range []string{"kube-apiserver", "b", "c"} {
		all = append(all, w.Get(staticpod.Dir+"/"+name+".yaml"))
	}
	return all
}

func TestPodsThatMountWhatHasChangedAreRestarted(t *testing.T) {
	w := newWorld(t)
	before := w.manifests()
	w.Put(audit, "new")
	require.NoError(t, w.restart())
	require.Equal(t, []string{"b-1", "kube-apiserver-1"}, w.runtime.Stops(), "c mounts something else")
	require.Equal(t, "new", w.runtime.Read("kube-apiserver"))
	require.False(t, w.work.Unfinished())
	require.NoError(t, w.restart())
	require.Len(t, w.runtime.Stops(), 2, "what is done is not done again")

	w.Put(audit, "old")
	require.NoError(t, w.restart())
	require.Equal(t, []string{"b-1", "kube-apiserver-1", "b-2", "kube-apiserver-2"}, w.runtime.Stops(), "what was put back is read again")
	require.Equal(t, "old", w.runtime.Read("kube-apiserver"))
	require.Equal(t, before, w.manifests(), "manifests are not touched")
}

func TestAKillAtAnyPoint(t *testing.T) {
	for killed := range 7 {
		w := newWorld(t)
		w.Put(audit, "new")
		w.saves = killed
		err := w.restart()
		if err != nil {
			require.ErrorIs(t, err, errKilled)
		}
		w.saves = -1
		require.NoError(t, w.restart())
		require.Equal(t, "new", w.runtime.Read("b"))
		require.Equal(t, "new", w.runtime.Read("kube-apiserver"))
		require.LessOrEqual(t, len(w.runtime.Stops()), 2, "none is restarted twice")
	}
}

func TestAPodThatIsNotReadyAgain(t *testing.T) {
	w := newWorld(t)
	w.Put(audit, "bad")
	w.runtime.Fail("bad")
	w.Host.Clock = &staticpodtest.Impatient{Left: 5}
	require.ErrorContains(t, w.restart(), "static pod b, which mounts what has changed, could not be restarted: container b is not ready")
	require.Equal(t, []string{"b-1"}, w.runtime.Stops(), "one at a time: the API server is left alone")
	require.True(t, w.work.Unfinished())
	w.Host.Clock = staticpodtest.Clock{}
	w.Put(audit, "old")
	require.NoError(t, w.restart())
	require.Equal(t, "old", w.runtime.Read("b"))
}

func TestEtcdIsNotRestartedUnasked(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, os.Remove(w.Path(staticpod.Dir+"/kube-apiserver.yaml")))
	require.NoError(t, os.Remove(w.Path(staticpod.Dir+"/b.yaml")))
	w.Put(staticpod.Dir+"/etcd.yaml", staticpodtest.Pod("etcd", "etcd:1")+
		"    volumeMounts: [{name: v, mountPath: /v}]\n  volumes: [{name: v, hostPath: {path: /etc/kubernetes/audit}}]\n")
	mounted, etcd, err := podrestart.Mounted(w.Host.Root, audit)
	require.NoError(t, err)
	require.True(t, mounted && etcd)
	w.Put(audit, "new")
	require.ErrorContains(t, w.restart(), "etcd can't be asked whether it can do without this member")
	require.Empty(t, w.runtime.Stops())
}

func TestMounted(t *testing.T) {
	w := newWorld(t)
	for p, want := range map[string]bool{
		audit: true, "/etc/kubernetes/audit/other": true, "/etc/kubernetes/audit": true, "/etc/kubernetes": true,
		"/etc/kubernetes/audit-policy.yaml": false, "/etc/kubernetes/aud": false,
	} {
		mounted, etcd, err := podrestart.Mounted(w.Host.Root, p)
		require.NoError(t, err)
		require.Equal(t, want, mounted, p)
		require.False(t, etcd)
	}
	require.NoError(t, os.Symlink("/etc/kubernetes/audit", w.Path("/etc/link")))
	mounted, _, err := podrestart.Mounted(w.Host.Root, "/etc/link/policy.yaml")
	require.NoError(t, err)
	require.True(t, mounted, "by where a link leads to")
}
