package lab

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/test/process"
)

// pinned writes a nested module and returns its directory.
func pinned(t *testing.T, mod, sum string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), []byte(sum), 0o600))
	return dir
}

func TestCacheKey(t *testing.T) {
	src := source{module: "etcd", version: "v1.2.3", pkg: "example.com/etcd"}
	key, err := cacheKey(pinned(t, "mod", "sum"), src)
	require.NoError(t, err)

	t.Run("a person can read it", func(t *testing.T) {
		assert.Regexp(t, "^etcd-v1.2.3-"+runtime.GOOS+"-"+runtime.GOARCH+"-[0-9a-f]{12}$", key)
	})
	for name, test := range map[string]struct {
		mod, sum, ldflags string
		same              bool
	}{
		"the same modules and flags give the same key": {mod: "mod", sum: "sum", same: true},
		"another go.mod gives another key":             {mod: "mod2", sum: "sum"},
		"another go.sum gives another key":             {mod: "mod", sum: "sum2"},
		"other flags give another key":                 {mod: "mod", sum: "sum", ldflags: "-X a.b=c"},
	} {
		t.Run(name, func(t *testing.T) {
			other := src
			other.ldflags = test.ldflags
			otherKey, err := cacheKey(pinned(t, test.mod, test.sum), other)
			require.NoError(t, err)
			assert.Equal(t, test.same, key == otherKey)
		})
	}
	t.Run("a module that is not pinned has none", func(t *testing.T) {
		_, err := cacheKey(t.TempDir(), src)
		assert.ErrorIs(t, err, os.ErrNotExist)
	})
}

func TestNestedModulesPinTheVersionsThatAreShown(t *testing.T) {
	for module, requirements := range map[string][]string{
		"kubernetes": {"k8s.io/kubernetes " + KubernetesVersion},
		"etcd":       {"go.etcd.io/etcd/server/v3 " + EtcdVersion},

		"kubernetes-v1.35.4": {"k8s.io/kubernetes " + PreviousMinorMachineVersion},
		"kubernetes-v1.36.1": {"k8s.io/kubernetes " + OlderMachineVersion},
		"containerd":         {"github.com/containerd/containerd/v2 " + machineSources["containerd"].version},
		"cni":                {"github.com/containernetworking/plugins " + machineSources["ptp"].version},
		"coredns":            {"github.com/coredns/coredns " + machineSources["coredns"].version},
		"crictl":             {"sigs.k8s.io/cri-tools " + machineSources["crictl"].version},
		"clusterctl":         {"sigs.k8s.io/cluster-api " + ClusterAPIVersion},
		"helm":               {"helm.sh/helm/v3 " + HelmVersion},
		"certmanager":        {"github.com/cert-manager/cert-manager " + CertManagerVersion},
		"clusterapi": {
			"sigs.k8s.io/cluster-api " + ClusterAPIVersion,
			"sigs.k8s.io/cluster-api/api " + ClusterAPIVersion,
			"sigs.k8s.io/cluster-api/test " + ClusterAPITestVersion,
		},
	} {
		dir, err := moduleDir(t.Context(), module)
		require.NoError(t, err)
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		require.NoError(t, err)
		for _, requirement := range requirements {
			assert.Regexp(t, `(?m)^(\t|require )`+regexp.QuoteMeta(requirement)+`( |$)`, string(mod))
		}
		all := map[Program]source{}
		maps.Copy(all, sources)
		for name, src := range machineSources {
			all[Program(name)] = src
		}
		for program, src := range all {
			if src.module == module {
				assert.Contains(t, string(mod), src.pkg, "%s is not declared as a tool", program)
			}
		}
	}
}

func TestProgramsOfKubernetesAreStampedWithTheirVersion(t *testing.T) {
	assert.Equal(t, "-X k8s.io/component-base/version.gitVersion=v1.35.4 -X k8s.io/component-base/version.gitMajor=1 "+
		"-X k8s.io/component-base/version.gitMinor=35", kubernetesFlags("v1.35.4"))
}

func TestEveryProgramHasASource(t *testing.T) {
	assert.Len(t, sources, len(Programs()))
	for _, program := range append(Programs(), labPrograms()...) {
		assert.Contains(t, sources, program)
	}
}

func TestBuild(t *testing.T) {
	t.Run("takes the API server's programs from KUBEBUILDER_ASSETS", func(t *testing.T) {
		dir := t.TempDir()
		t.Setenv(assetsEnv, dir)
		path := filepath.Join(dir, "etcd")
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		binaries, err := Build(t.Context(), nil, Etcd)
		require.NoError(t, err)
		assert.Equal(t, Binaries{Etcd: path}, binaries)
	})
	t.Run("says so when they are not there", func(t *testing.T) {
		t.Setenv(assetsEnv, t.TempDir())
		_, err := Build(t.Context(), nil, Kubectl)
		assert.ErrorContains(t, err, assetsEnv)
		assert.ErrorIs(t, err, os.ErrNotExist)
	})
	t.Run("refuses a program that it does not know", func(t *testing.T) {
		_, err := Build(t.Context(), nil, "emacs")
		assert.EqualError(t, err, "emacs: no such program")
	})
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	release, err := lock(t.Context(), path, func() { t.Error("nobody else has it") })
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	told := 0
	_, err = lock(ctx, path, func() { told++ })
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Equal(t, 1, told)

	release()
	release, err = lock(t.Context(), path, func() { t.Error("it was given back") })
	require.NoError(t, err)
	release()
}

func TestLastLines(t *testing.T) {
	for in, want := range map[string]string{"": "", "a": "a", "a\nb\n": "a\nb", "a\nb\nc\n": "b\nc"} {
		assert.Equal(t, want, string(process.LastLines([]byte(in), 2)))
	}
}
