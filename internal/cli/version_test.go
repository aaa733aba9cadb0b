package cli

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/managementtest"
)

func TestVersionCommand(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "refit-system", Name: "refit", Labels: map[string]string{"app.kubernetes.io/name": "refit"}}}
	d.Spec.Replicas, d.Status.UpdatedReplicas = new(int32(2)), 1
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Image: "registry.example.org/refit:v0.1.0"}}
	other := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "refit-system", Name: "other"}}
	command := func(args ...string) (string, error) {
		return run(t, (&versionFlags{managementFlags: connected(managementtest.New(d, other))}).command(), args...)
	}
	out, err := command()
	require.NoError(t, err)
	mine := version + " (" + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH + ")\n"
	require.Equal(t, "Client: "+mine+"Server: registry.example.org/refit:v0.1.0 (1 of 2 replicas of refit-system/refit)\n", out)
	out, err = command("--client")
	require.NoError(t, err)
	require.Equal(t, "Client: "+mine, out)
	for format, read := range map[string]func([]byte, any) error{"json": json.Unmarshal, "yaml": func(data []byte, into any) error { return yaml.Unmarshal(data, into) }} {
		out, err = command("-o", format)
		require.NoError(t, err)
		var v versions
		require.NoError(t, read([]byte(out), &v))
		require.Equal(t, versions{
			Client:  clientVersion{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH},
			Servers: []serverVersion{{"refit-system", "refit", "registry.example.org/refit:v0.1.0", 2, 1}},
		}, v)
	}
	_, err = command("-o", "xml")
	require.ErrorContains(t, err, `--output is "xml" and can be text, json, yaml`)
}

// TestVersionWithoutACluster shows what it knows, and fails.
func TestVersionWithoutACluster(t *testing.T) {
	f := &versionFlags{managementFlags: managementFlags{connect: func(*rest.Config) (client.WithWatch, error) { return nil, errors.New("no route to host") }}}
	out, err := run(t, f.command())
	require.ErrorContains(t, err, "no route to host")
	require.Contains(t, out, "Client: "+version)
}

// TestKubectlsFlags are followed: another context, another user, as somebody else, for so long.
func TestKubectlsFlags(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{"clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}, {"name": "b", "cluster": {"server": "https://127.0.0.1:2"}}],
		"users": [{"name": "u", "user": {"token": "t"}}],
		"contexts": [{"name": "a", "context": {"cluster": "a"}}, {"name": "b", "context": {"cluster": "b", "namespace": "fleet"}}], "current-context": "a"}`), 0o600))
	f := &managementFlags{}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.addConnection(fs)
	require.NoError(t, fs.Parse([]string{
		"--kubeconfig", kubeconfig, "--context", "b", "--user", "u", "--as", "alice", "--as-group", "ops", "--as-group", "night", "--as-uid", "1", "--request-timeout", "7s",
	}))
	cfg, err := f.config.ToRESTConfig()
	require.NoError(t, err)
	require.Equal(t, "https://127.0.0.1:2", cfg.Host)
	require.Equal(t, "t", cfg.BearerToken)
	require.Equal(t, "alice", cfg.Impersonate.UserName)
	require.Equal(t, "1", cfg.Impersonate.UID)
	require.Equal(t, []string{"ops", "night"}, cfg.Impersonate.Groups)
	require.Equal(t, "7s", cfg.Timeout.String())
	namespace, err := f.defaultNamespace()
	require.NoError(t, err)
	require.Equal(t, "fleet", namespace)
}

// TestNamesAreCompleted as a shell asks for them.
func TestNamesAreCompleted(t *testing.T) {
	other := managementtest.Machine("edge", "shop-a", "shop")
	prod := managementtest.Machine("fleet", "prod-a", "prod")
	for _, m := range []*clusterv1.Machine{other, prod} {
		m.Labels = map[string]string{clusterv1.ClusterNameLabel: m.Spec.ClusterName}
	}
	c := managementtest.New(
		prod, other, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "prod"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}},
	)
	complete := func(args ...string) string {
		root := &cobra.Command{Use: "refit"}
		status, hold := &statusFlags{managementFlags: connected(c)}, &holdFlags{managementFlags: connected(c)}
		root.AddCommand(status.command(), hold.holdCommand())
		out, err := run(t, root, append([]string{"__complete"}, args...)...)
		require.NoError(t, err)
		return out
	}
	require.Equal(t, "prod-a\nshop-a\n:4\n", complete("status", ""))
	require.Equal(t, "prod-a\n:4\n", complete("status", "-n", "fleet", ""))
	require.Equal(t, "shop-a\n:4\n", complete("status", "--cluster", "shop", ""))
	require.Equal(t, "shop-a\n:4\n", complete("status", "prod-a", ""))
	require.Equal(t, "prod\n:4\n", complete("status", "--cluster", ""))
	require.Equal(t, "prod-a\n:4\n", complete("hold", "p"))
	require.NotContains(t, complete("hold", "prod-a", ""), "shop-a", "it takes one")
	require.Equal(t, "fleet\n:4\n", complete("status", "-n", "f"))
	require.Equal(t, "prod\n:4\n", complete("hold", "prod-a", "--cluster", ""), "flags behind the name of a machine")
	require.Equal(t, "prod\n:4\n", complete("status", "prod", "--cluster", ""), "a machine may have the name of a Cluster")
	require.Equal(t, "table\nwide\njson\nyaml\nname\n:4\n", complete("status", "-o", ""))
}

// silent is a kubeconfig of an API server that takes connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{"clusters": [{"name": "a", "cluster": {"server": "http://`+l.Addr().String()+`"}}],
		"contexts": [{"name": "a", "context": {"cluster": "a"}}], "current-context": "a"}`), 0o600))
	return kubeconfig
}

// TestACompletionEndsWithoutAnAnswer, also behind flags, which are read twice then.
func TestACompletionEndsWithoutAnAnswer(t *testing.T) {
	out, err := run(t, newRootCommand(), "__complete", "hold", "--kubeconfig", silent(t), "-n", "fleet", "")
	require.NoError(t, err)
	require.Contains(t, out, ":4\n", "no names of files are offered")
}

// TestVersionEndsWithoutAnAnswer, and shows first what it knows.
func TestVersionEndsWithoutAnAnswer(t *testing.T) {
	out, err := run(t, newRootCommand(), "version", "--kubeconfig", silent(t))
	require.Error(t, err)
	require.Contains(t, out, "Client: "+version)
}
