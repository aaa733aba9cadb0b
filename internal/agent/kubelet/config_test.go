package kubelet

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/host/hosttest"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

const (
	patchDir = "/etc/kubernetes/patches"
	patch    = patchDir + "/kubeletconfiguration+merge.yaml"
	oldFlags = "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/x.sock --v=2\"\n"
	oldYAML  = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 110\n# kept\n"
)

// configWorld is a node with a script in the place of kubeadm, which writes the configuration with the patch after it.
type configWorld struct {
	hosttest.Files
	t    *testing.T
	kind *Config
}

func newConfigWorld(t *testing.T) *configWorld {
	t.Helper()
	w := &configWorld{Files: hosttest.NewFiles(t, t.TempDir()), t: t}
	w.Put(FlagsFile, oldFlags)
	w.Put(ConfigFile, oldYAML)
	w.kubeadm(`cat $R` + patch + ` >> $R` + ConfigFile + `.new 2>/dev/null || true; mv $R` + ConfigFile + `.new $R` + ConfigFile)
	w.kind = NewConfig(host.Host{
		Root: host.Root{Dir: w.Dir, Private: w.Path("var/lib/refit")}, Disk: host.Disk{NoSync: true},
	})
	return w
}

// kubeadm is one that begins the new configuration, and then does more.
func (w *configWorld) kubeadm(more string) {
	w.t.Helper()
	w.PutMode("/usr/bin/kubeadm", "#!/bin/sh\nR="+w.Dir+"\necho \"$@\" >> $R/called\n"+
		"printf 'apiVersion: kubelet.config.k8s.io/v1beta1\\nkind: KubeletConfiguration\\n' > $R"+ConfigFile+".new\n"+more+"\n", 0o700)
}

func (w *configWorld) question(was, want string, files map[string]string) kind.Question {
	q := kind.Question{Known: true, Rules: disruption.BuiltinRules(), Files: map[string][]byte{}}
	if was != "-" {
		q.Was = &node.Resource{KubeletConfig: &node.KubeletConfig{PatchesDirectory: was}}
	}
	q.Desired = &node.Resource{KubeletConfig: &node.KubeletConfig{PatchesDirectory: want}}
	for p, content := range files {
		q.Files[p] = []byte(content)
		if content == "" {
			q.Files[p] = nil
		}
	}
	return q
}

func (w *configWorld) plan(q kind.Question) kind.Answer {
	w.t.Helper()
	a, err := w.kind.Plan(w.t.Context(), q)
	require.NoError(w.t, err)
	return a
}

func TestAChangedPatchOfTheKubeletsConfiguration(t *testing.T) {
	w := newConfigWorld(t)
	w.Put(patch, "maxPods: 110\n")
	require.Empty(t, w.plan(w.question(patchDir, patchDir, nil)).Operation)
	require.Empty(t, w.plan(w.question(patchDir, patchDir, map[string]string{patchDir + "/etcd.yaml": "x", "/etc/motd": "x"})).Operation)
	q := w.question(patchDir, patchDir, map[string]string{patch: "maxPods: 50\nruntimeRequestTimeout: 120s\n"})
	a := w.plan(q)
	require.Equal(t, node.Write, a.Operation)
	require.Equal(t, []disruption.Action{{Type: disruption.Restart, Unit: Unit}}, a.Actions)

	w.Put(patch, "maxPods: 50\nruntimeRequestTimeout: 120s\n") // which the run does before
	c := kind.Change{Was: q.Was, Desired: q.Desired, Before: a.Before}
	for range 2 { // it can be repeated
		_, err := w.kind.Make(t.Context(), c)
		require.NoError(t, err)
	}
	require.Contains(t, w.Get(ConfigFile), "maxPods: 50")
	require.Contains(t, w.Get("/called"), "upgrade node phase kubelet-config --patches="+patchDir)
	for range 2 {
		require.NoError(t, w.kind.Undo(t.Context(), c))
	}
	require.Equal(t, oldYAML, w.Get(ConfigFile), "byte for byte")
	require.Equal(t, oldFlags, w.Get(FlagsFile))
	require.Equal(t, "(missing)", w.Get(InstanceFile))
}

func TestPatchesThatComeAndGo(t *testing.T) {
	w := newConfigWorld(t)
	require.Empty(t, w.plan(w.question("", patchDir, nil)).Operation, "a directory without patches of the kubelet")
	require.NotEmpty(t, w.plan(w.question(patchDir, patchDir, map[string]string{patch: "maxPods: 9\n"})).Operation)
	w.Put(patch, "maxPods: 9\n")
	require.NotEmpty(t, w.plan(w.question(patchDir, patchDir, map[string]string{patch: ""})).Operation)
	require.NotEmpty(t, w.plan(w.question("", patchDir, nil)).Operation)
	require.NotEmpty(t, w.plan(w.question(patchDir, "", nil)).Operation)
	require.NotEmpty(t, w.plan(w.question("-", patchDir, nil)).Operation, "not known, and the configuration does not have it")
	w.Put(patch, "maxPods: 110\n")
	require.Empty(t, w.plan(w.question("-", patchDir, nil)).Operation, "not known, and the configuration has it")
	require.NoError(t, os.Remove(w.Path("usr/bin/kubeadm")))
	require.Contains(t, w.plan(w.question(patchDir, "", nil)).Blocked, "the node has no kubeadm")
}

func TestAConfigurationWithoutItsPatches(t *testing.T) {
	w := newConfigWorld(t)
	w.Put(patch, "maxPods: 50\nauthentication: {anonymous: {enabled: false}}\n")
	q := w.question("", patchDir, nil)
	a := w.plan(q)
	w.kubeadm("mv $R" + ConfigFile + ".new $R" + ConfigFile)
	_, err := w.kind.Make(t.Context(), kind.Change{Desired: q.Desired, Before: a.Before})
	require.ErrorContains(t, err, "does not have what the patches in "+patchDir+" say of maxPods; this version")

	w.kubeadm("echo 'maxPods: 50' >> $R" + ConfigFile + ".new; mv $R" + ConfigFile + ".new $R" + ConfigFile + "; echo 'KUBELET_KUBEADM_ARGS=\"--v=2\"' > $R" + FlagsFile)
	_, err = w.kind.Make(t.Context(), kind.Change{Desired: q.Desired, Before: a.Before})
	require.ErrorContains(t, err, "the address of the container runtime is neither")

	w.kubeadm("echo no >&2; exit 1")
	_, err = w.kind.Make(t.Context(), kind.Change{Desired: q.Desired, Before: a.Before})
	require.ErrorContains(t, err, "kubeadm could not make the configuration of the kubelet")
	require.NoError(t, w.kind.Undo(t.Context(), kind.Change{Desired: q.Desired, Before: a.Before}))
	require.Equal(t, oldYAML+oldFlags, w.Get(ConfigFile)+w.Get(FlagsFile))
}

func TestAPatchOfHowCPUsAreManagedDrains(t *testing.T) {
	w := newConfigWorld(t)
	w.Put("/var/lib/kubelet/cpu_manager_state", `{"policyName":"none"}`)
	a := w.plan(w.question(patchDir, patchDir, map[string]string{patch: "cpuManagerPolicy: static\n"}))
	require.Contains(t, a.Blocked, "no systemctl")
	w.kind.host.Units = nothing{}
	a = w.plan(w.question(patchDir, patchDir, map[string]string{patch: "cpuManagerPolicy: static\n"}))
	require.Equal(t, []disruption.Action{{Type: disruption.Drain}, {Type: disruption.Restart, Unit: Unit}}, a.Actions)
}

// nothing is a service manager that is not asked for anything.
type nothing struct{ host.Units }

func TestWhatAConfigurationHas(t *testing.T) {
	const config = "kind: KubeletConfiguration\nmaxPods: 5\nsyncFrequency: 1m0s\nlogging: {flushFrequency: 5000000000}\nfeatureGates: {A: true}\n"
	for text, missing := range map[string][]string{
		"maxPods: 5\nsyncFrequency: 60s\nlogging: {flushFrequency: 5s}\nfeatureGates: {A: true}": nil,
		"maxPods: 6":                   {"maxPods"},
		"syncFrequency: 61s":           {"syncFrequency"},
		"featureGates: {A: false}":     {"featureGates.A"},
		"featureGates: {B: true}":      {"featureGates.B"},
		"protectKernelDefaults: false": nil, // zero values of some fields are left out
		"clusterDNS: [1.2.3.4]":        nil,
		"maxPods: null":                {"maxPods"},
	} {
		got, err := patches{"kubeletconfiguration.yaml": []byte(text)}.missing([]byte(config))
		require.NoError(t, err)
		require.Equal(t, missing, got, text)
	}
	got, err := patches{"kubeletconfiguration0.yaml": []byte("maxPods: 6"), "kubeletconfiguration1.yaml": []byte("maxPods: 5")}.missing([]byte(config))
	require.NoError(t, err)
	require.Empty(t, got, "the last one counts")
	_, err = patches{}.missing([]byte("kind: Other"))
	require.ErrorContains(t, err, "is not the configuration of a kubelet")
}
