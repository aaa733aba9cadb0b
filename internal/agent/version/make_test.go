package version

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/kubelet"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
	"github.com/capi-refit/refit/internal/node"
)

// snapshotNote begins the note of a snapshot of etcd.
const snapshotNote = "a snapshot of etcd is kept in /var/lib/refit/etcd/"

const plainCall = "upgrade node --etcd-upgrade=false --certificate-renewal=false --skip-phases=addon\n"

func (w *world) make(c kind.Change) string {
	w.Helper()
	note, err := w.kind.Make(w.Context(), c)
	require.NoError(w, err)
	return note
}

func TestMakeOnAWorker(t *testing.T) {
	w := newWorld(t)
	config := w.Get(kubelet.ConfigFile)
	c := w.change(newVersion)
	for range 2 {
		require.Empty(t, w.make(c))
		require.Equal(t, newVersion, w.runs())
		require.Equal(t, [2]string{newVersion, newVersion}, w.programs())
		require.Equal(t, plainCall, w.Get("/calls"), "the second time there is nothing to do")
		require.Equal(t, []string{"daemon-reload", "reset-failed kubelet.service", "restart kubelet.service"}, w.calls)
		require.Equal(t, []string{"v1.36.3 kubeadm", "v1.36.3 kubelet kubectl"}, w.releases.calls)
		require.Empty(t, w.ask(newVersion, newVersion))
	}
	for range 2 {
		require.NoError(t, w.kind.Undo(t.Context(), c))
		require.Equal(t, oldVersion, w.runs())
		require.Equal(t, [2]string{oldVersion, oldVersion}, w.programs())
		require.Equal(t, config, w.Get(kubelet.ConfigFile))
	}
	require.Empty(t, w.ask(oldVersion, oldVersion))
}

// What an installation tells beside its success is told once.
func TestMakeTellsNotesOfInstallations(t *testing.T) {
	w := newWorld(t)
	w.releases.note = "another package is broken"
	require.Equal(t, "another package is broken", w.make(w.change(newVersion)))
}

func TestMakeOnAControlPlane(t *testing.T) {
	for _, version := range []string{newVersion, nextMinor} {
		t.Run(version, func(t *testing.T) {
			w := newControlPlane(t, version)
			etcd, config := w.Get("/etc/kubernetes/manifests/etcd.yaml"), w.Get(kubelet.ConfigFile)
			w.Put("/next/etcd.yaml", w.manifest("etcd", version)+"# never\n")
			c := w.change(version)
			for _, note := range []string{snapshotNote, ""} {
				require.Regexp(t, "^"+note, w.make(c))
				require.Equal(t, version, w.runs())
				require.Equal(t, plainCall, w.Get("/calls"))
				require.Empty(t, w.ask(version, version))
			}
			require.Equal(t, etcd, w.Get("/etc/kubernetes/manifests/etcd.yaml"))
			require.Len(t, w.snapshots(), 1)

			for range 2 {
				require.NoError(t, w.kind.Undo(t.Context(), c))
				require.Equal(t, oldVersion, w.runs())
				require.Equal(t, [2]string{oldVersion, version}, w.programs(), "kubeadm stays with the control plane")
				require.Equal(t, config, w.Get(kubelet.ConfigFile))
				require.Equal(t, w.manifest("kube-apiserver", version), w.Get("/etc/kubernetes/manifests/kube-apiserver.yaml"))
			}
			require.Equal(t, plainCall, w.Get("/calls"))
			a := w.ask(oldVersion, version)
			require.Equal(t, node.Write, a.Operation, "it can be made again")
			require.False(t, a.Conflict, "what the failure has left is nobody's doing")
			require.Contains(t, w.make(kind.Change{Was: spec(oldVersion), Desired: spec(version), Before: a.Before}), snapshotNote)
			require.Equal(t, version, w.runs())
		})
	}
}

func TestHowKubeadmIsCalled(t *testing.T) {
	env := "    env: [{name: HTTPS_PROXY, value: 'http://proxy:3128'}, {name: NO_PROXY, value: specs}]\n"
	for name, tc := range map[string]struct {
		prepare func(w *world)
		version func(v *node.Version)
		call    string
		note    string
	}{
		"patches, and preflight errors to ignore": {
			version: func(v *node.Version) {
				v.PatchesDirectory, v.IgnorePreflightErrors = "/etc/patches", []string{"Swap", "Mem"}
			},
			call: "upgrade node --etcd-upgrade=false --certificate-renewal=false --patches=/etc/patches --ignore-preflight-errors=Swap,Mem --skip-phases=addon\n",
		},
		"a kubeadm without a phase for addons": {
			prepare: func(w *world) { w.Put("/help", "preflight  Run checks\n  the addons are upgraded\n") },
			call:    "upgrade node --etcd-upgrade=false --certificate-renewal=false\n",
		},
		"another etcd": {
			prepare: func(w *world) {
				w.Put("/etcd-tag", "3.6.9-0")
				w.Put("/next/etcd.yaml", replaced(w.manifest("etcd", newVersion), "3.6.8-0", "3.6.9-0"))
			},
			call: "upgrade node --etcd-upgrade=true --certificate-renewal=false --skip-phases=addon\n",
		},
		"certificates to renew": {
			prepare: func(w *world) { w.clock.ahead = 10 * time.Minute },
			call:    "upgrade node --etcd-upgrade=true --certificate-renewal=true --skip-phases=addon\n",
			note:    "certificates were renewed: /etc/kubernetes/pki/apiserver.crt had less than half of its lifetime left",
		},
		"proxies that the node was made with": {
			prepare: func(w *world) {
				w.Put("/etc/kubernetes/manifests/kube-apiserver.yaml", w.manifest("kube-apiserver", oldVersion)+env)
				w.Config += "apiServer: {extraEnvs: [{name: NO_PROXY, value: specs}]}\n"
			},
			call: plainCall + "HTTPS_PROXY=http://proxy:3128\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newControlPlane(t, newVersion)
			if tc.prepare != nil {
				tc.prepare(w)
			}
			c := w.change(newVersion)
			if tc.version != nil {
				tc.version(c.Desired.Version)
			}
			note := w.make(c)
			require.Contains(t, note, tc.note)
			require.Contains(t, note, snapshotNote)
			require.Equal(t, tc.call, w.Get("/calls"))
		})
	}
}

func TestEtcdIsAskedAgainBeforeItIsTouched(t *testing.T) {
	for name, tc := range map[string]struct{ tag, etcds string }{
		"an etcd that is restarted":  {"3.6.9-0", `{"name":"a"},{"name":"b"}`},
		"an etcd that is left alone": {"3.6.8-0", `{"name":"a"},{"name":"b"},` + sickMember},
	} {
		t.Run(name, func(t *testing.T) {
			w := newControlPlane(t, newVersion)
			w.Put("/etcd-tag", tc.tag)
			c := w.change(newVersion)
			w.Set(func(n *staticpodtest.Node) { n.Members = tc.etcds })
			w.clock.impatient = &staticpodtest.Impatient{Left: 3}
			_, err := w.kind.Make(t.Context(), c)
			require.ErrorContains(t, err, "etcd has no member to spare")
			require.Equal(t, "(missing)", w.Get("/calls"))
			require.Empty(t, w.snapshots())
			w.clock.impatient = nil
			require.NoError(t, w.kind.Undo(t.Context(), c))
			require.Equal(t, [2]string{oldVersion, oldVersion}, w.programs())
			require.Empty(t, w.calls, "the kubelet was not touched")
		})
	}
}

// TestEtcdIsGivenTimeWhenTheRunIsTakenUp has etcd not come up at all, which is waited for as long as for a manifest that was put back.
func TestEtcdIsGivenTimeWhenTheRunIsTakenUp(t *testing.T) {
	w := newControlPlane(t, newVersion)
	c := w.change(newVersion)
	w.Set(func(n *staticpodtest.Node) {
		n.Answer = func(rw http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/health" {
				http.Error(rw, "no", http.StatusServiceUnavailable)
				return true
			}
			return w.answer(rw, r)
		}
	})
	for again, fails := range map[bool]string{false: "etcd has no member to spare", true: "etcd of this node is not as it has to be"} {
		w.clock.impatient = &staticpodtest.Impatient{Left: 3}
		c.Again = again
		_, err := w.kind.Make(t.Context(), c)
		require.ErrorContains(t, err, fails)
	}
	require.Equal(t, "(missing)", w.Get("/calls"))
}

func TestWhatKubeadmHasLeftIsTidiedBeforeItIsCalled(t *testing.T) {
	w := newControlPlane(t, newVersion)
	c := w.change(newVersion)
	w.Put("/fail-before", "")
	for _, year := range []string{"2023", "2024", "2025"} {
		p := "/etc/kubernetes/tmp/kubeadm-backup-etcd-" + year + "-02-01-00-00-00"
		w.Put(p+"/etcd/db", "")
		old := w.clock.Now().Add(-time.Hour)
		require.NoError(t, os.Chtimes(w.Path(p), old, old))
	}
	_, err := w.kind.Make(t.Context(), c)
	require.ErrorContains(t, err, "timed out")
	entries, err := os.ReadDir(w.Path("/etc/kubernetes/tmp"))
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.Equal(t, "kubeadm-backup-etcd-2024-02-01-00-00-00", entries[0].Name())
}

// snapshots are those of etcd that are kept on the node.
func (w *world) snapshots() []string {
	files, err := filepath.Glob(w.Path("/var/lib/refit/etcd/*.db"))
	require.NoError(w, err)
	return files
}

func TestKubeadmConfigThatHasChangedSince(t *testing.T) {
	w := newControlPlane(t, newVersion)
	c := w.change(newVersion)
	w.configure(nextMinor)
	_, err := w.kind.Make(t.Context(), c)
	require.ErrorContains(t, err, "kubeadm-config in kube-system says Kubernetes v1.37.0, not v1.36.3")
	require.Equal(t, "(missing)", w.Get("/calls"))
}

func TestFailuresOfKubeadm(t *testing.T) {
	t.Run("that it has seen to itself", func(t *testing.T) {
		w := newControlPlane(t, newVersion)
		c := w.change(newVersion)
		w.Put("/fail-before", "")
		_, err := w.kind.Make(t.Context(), c)
		require.ErrorContains(t, err, "kubeadm could not bring the node to Kubernetes v1.36.3")
		require.ErrorContains(t, err, "timed out, token [redacted]; the manifests are as they were, kubeadm has seen to that")
		require.NoError(t, w.kind.Undo(t.Context(), c))
		require.Empty(t, w.ask(oldVersion, oldVersion))
		require.Empty(t, w.calls)
	})
	t.Run("that it has not", func(t *testing.T) {
		w := newControlPlane(t, newVersion)
		c := w.change(newVersion)
		w.Put("/fail-within", "")
		_, err := w.kind.Make(t.Context(), c)
		require.ErrorContains(t, err, "it has not put back kube-apiserver.yaml")
		require.NoError(t, w.kind.Undo(t.Context(), c))
		require.Empty(t, w.ask(oldVersion, oldVersion))
		require.Equal(t, [2]string{oldVersion, oldVersion}, w.programs())
		require.Empty(t, w.calls)
	})
	t.Run("of a worker's", func(t *testing.T) {
		w := newWorld(t)
		c := w.change(newVersion)
		w.Put("/fail-before", "")
		_, err := w.kind.Make(t.Context(), c)
		require.ErrorContains(t, err, "timed out")
		require.NotContains(t, err.Error(), "manifests")
	})
	t.Run("that it does not tell", func(t *testing.T) {
		w := newControlPlane(t, newVersion)
		c := w.change(newVersion)
		w.Put("/next/kube-scheduler.yaml", w.manifest("kube-scheduler", oldVersion))
		_, err := w.kind.Make(t.Context(), c)
		require.ErrorContains(t, err, "kubeadm has ended well, but the static pods are not of Kubernetes v1.36.3: kube-scheduler v1.36.1")
	})
}

func TestKubeletThatDoesNotComeUp(t *testing.T) {
	for name, world := range map[string]func(t *testing.T) *world{
		"of a worker":        newWorld,
		"of a control plane": func(t *testing.T) *world { return newControlPlane(t, newVersion) },
	} {
		t.Run(name, func(t *testing.T) {
			w := world(t)
			config := w.Get(kubelet.ConfigFile)
			w.Program("journalctl", `[ "$*" = "_SYSTEMD_UNIT=kubelet.service --no-pager -n 5 -o cat" ] && echo "failed to run Kubelet"; echo "password=hunter2 given"`)
			c := w.change(newVersion)
			w.broken[newVersion] = true
			w.clock.impatient = &staticpodtest.Impatient{Left: 20}
			_, err := w.kind.Make(t.Context(), c)
			require.ErrorContains(t, err, "the kubelet does not work as v1.36.3: the kubelet does not become healthy")
			require.ErrorContains(t, err, "the kubelet has said last: failed to run Kubelet; password=[redacted] given")
			require.Empty(t, w.runs())

			w.clock.impatient = nil
			w.releases.calls, w.calls = nil, nil
			require.NoError(t, w.kind.Undo(t.Context(), c))
			require.Equal(t, oldVersion, w.runs())
			require.Equal(t, oldVersion, w.programs()[0])
			require.Contains(t, w.releases.calls, "v1.36.1 kubelet kubectl")
			require.Contains(t, w.calls, "restart kubelet.service")
			require.Equal(t, config, w.Get(kubelet.ConfigFile))
		})
	}
}

func TestNodeThatIsNotReady(t *testing.T) {
	w := newWorld(t)
	c := w.change(newVersion)
	w.make(c)
	w.set(func() { w.ready = false })
	w.clock.impatient = &staticpodtest.Impatient{Left: 3}
	_, err := w.kind.Make(t.Context(), c)
	require.ErrorContains(t, err, "the Node is not Ready (see journalctl -u kubelet on the node)")
}

func TestUndoWhenTheOldKubeletIsInstalledButDoesNotRun(t *testing.T) {
	w := newWorld(t)
	c := w.change(newVersion)
	w.broken[newVersion] = true
	w.clock.impatient = &staticpodtest.Impatient{Left: 3}
	_, err := w.kind.Make(t.Context(), c)
	require.Error(t, err)
	w.clock.impatient = nil
	_, err = w.releases.Install(t.Context(), oldVersion, "kubelet", "kubectl", "kubeadm") // the process died after that
	require.NoError(t, err)
	require.NoError(t, w.kind.Undo(t.Context(), c))
	require.Equal(t, oldVersion, w.runs())
}

func TestUndoOfNothing(t *testing.T) {
	w := newControlPlane(t, newVersion)
	c := w.change(newVersion)
	require.NoError(t, w.kind.Undo(t.Context(), c))
	require.Empty(t, w.calls)
	require.Empty(t, w.releases.calls)
}

func TestChangeThatCanNotBeRead(t *testing.T) {
	w := newWorld(t)
	c := kind.Change{Desired: spec(newVersion), Before: []byte("{")}
	_, err := w.kind.Make(t.Context(), c)
	require.ErrorContains(t, err, "can't be read")
	require.ErrorContains(t, w.kind.Undo(t.Context(), c), "can't be read")
	c = w.change(newVersion)
	require.NoError(t, os.Remove(w.Path("/usr/bin/kubelet")))
	_, err = w.kind.Make(t.Context(), c)
	require.ErrorContains(t, err, "no kubelet any more")
}
