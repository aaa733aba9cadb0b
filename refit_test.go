package refit_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// vendor is where a vendor's module is, which is not in refit's.
const vendor = "acme.example/refit"

const request = `{
  "apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1", "kind": "CanUpdateMachineRequest",
  "current": {
    "machine": {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"namespace": "lab", "name": "m"}, "spec": {"clusterName": "c1"}},
    "infrastructureMachine": {"apiVersion": "infrastructure.acme.example/v1", "kind": "AcmeMachine", "metadata": {"name": "m"}, "spec": {}},
    "bootstrapConfig": {"apiVersion": "bootstrap.acme.example/v1", "kind": "AcmeConfig", "metadata": {"name": "m"}, "spec": {"banner": "hello"}}
  },
  "desired": {
    "machine": {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"namespace": "lab", "name": "m"}, "spec": {"clusterName": "c1"}},
    "infrastructureMachine": {"apiVersion": "infrastructure.acme.example/v1", "kind": "AcmeMachine", "metadata": {"name": "m"}, "spec": {}},
    "bootstrapConfig": {"apiVersion": "bootstrap.acme.example/v1", "kind": "AcmeConfig", "metadata": {"name": "m"}, "spec": {"banner": "good evening"}}
  }
}`

// TestAnUpdaterOfAnotherModule builds the example of docs/write-an-updater.md as a vendor does, outside of refit's module, and asks it.
func TestAnUpdaterOfAnotherModule(t *testing.T) {
	if testing.Short() {
		t.Skip("it links all of refit once more")
	}
	here, err := os.Getwd()
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, text string) {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	read := func(name string) string {
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(data)
	}
	const ours = "github.com/capi-refit/refit"
	write("go.mod", strings.Replace(read("go.mod"), "module "+ours, "module "+vendor, 1)+
		"\nrequire "+ours+" v0.0.0\n\nreplace "+ours+" => "+here+"\n")
	write("go.sum", read("go.sum"))
	write("main.go", strings.Replace(read("docs/updater/cmd/refit/main.go"), ours+"/docs/updater/banner", vendor+"/banner", 1))
	write("banner/banner.go", read("docs/updater/banner/banner.go"))
	write("banner/banner_test.go", read("docs/updater/banner/banner_test.go"))
	write("request.json", request)
	run := func(program string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir = dir
		// What is needed is there, since refit itself is built from it.
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod -trimpath", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off", "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	run("go", "test", "-vet=off", "-run", "^Test(UpdaterConforms|Claim|Desire)$", "./banner")
	run("go", "build", "-ldflags", "-X "+ours+".version=v1.2.3-acme", "-o", "refit", ".")
	require.Equal(t, "refit version v1.2.3-acme\n", run(filepath.Join(dir, "refit"), "--version"))
	require.Contains(t, run(filepath.Join(dir, "refit"), "explain", "-f", "request.json"), "bootstrapConfig  spec.banner  banner ")
}
