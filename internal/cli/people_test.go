package cli

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/admin"
	"github.com/capi-refit/refit/internal/audit"
	"github.com/capi-refit/refit/internal/managementtest"
)

var october = managementtest.Start

// management is a management cluster with one Machine, whose update has failed.
func management(t *testing.T) client.WithWatch {
	t.Helper()
	m := managementtest.Machine("fleet", "prod-a", "prod", func(m *clusterv1.Machine) { m.UID, m.Status.NodeRef.Name = "u", "worker-1" })
	mu := managementtest.MachineUpdate(m, func(mu *refitv1.MachineUpdate) {
		mu.Status.Phase, mu.Status.Reason, mu.Status.Message = refitv1.PhaseFailed, "NodeFailed", "no"
		mu.Status.FinishedAt = new(metav1.NewTime(october.Add(-time.Minute)))
	})
	return managementtest.As("alice", managementtest.NewOf([]func(*runtime.Scheme) error{controlplanev1.AddToScheme, runtimev1.AddToScheme}, m, mu))
}

func connected(c client.WithWatch) managementFlags {
	return managementFlags{connect: func(*rest.Config) (client.WithWatch, error) { return c, nil }}
}

func run(t *testing.T, cmd *cobra.Command, args ...string) (string, error) {
	t.Helper()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// leases are the node leases of a workload cluster.
type leases map[string]string

func (l leases) Hold(_ context.Context, node, admin, reason string, d time.Duration) error {
	l[node] = admin + " " + reason + " " + d.String()
	return nil
}

func (l leases) Mark(_ context.Context, node string, machine types.UID) error {
	l["mark "+node] = string(machine)
	return nil
}

func (l leases) ReleaseNode(_ context.Context, node string) error {
	delete(l, "mark "+node)
	return nil
}

func (l leases) Unhold(_ context.Context, node, _ string) error {
	delete(l, node)
	return nil
}

func TestHoldAndRelease(t *testing.T) {
	c, l := management(t), leases{}
	flags := func() *holdFlags {
		return &holdFlags{
			managementFlags: connected(c), clock: clocktesting.NewFakeClock(october),
			nodes: func(context.Context, types.NamespacedName) (admin.Nodes, error) { return l, nil },
		}
	}
	out, err := run(t, flags().holdCommand(), "worker-1", "--reason", "disk swap", "--until", "90m", "-n", "fleet")
	require.NoError(t, err)
	require.Contains(t, out, "Machine fleet/prod-a is held by alice until 2026-10-03T21:30:00Z")
	require.Equal(t, leases{"worker-1": "alice disk swap 1h30m0s", "mark worker-1": "u"}, l)

	_, err = run(t, flags().holdCommand(), "prod-a", "--reason", "x", "--as-admin", "bob", "--no-wait")
	require.ErrorContains(t, err, "held by alice (disk swap)")
	_, err = run(t, flags().releaseCommand(), "prod-a", "--as-admin", "bob")
	require.ErrorContains(t, err, "--force")
	out, err = run(t, flags().releaseCommand(), "prod-a")
	require.NoError(t, err)
	require.Contains(t, out, "Machine fleet/prod-a is released.")
	require.Empty(t, l)

	for args, says := range map[string]string{
		"prod-a":                                 `required flag(s) "reason" not set`,
		"prod-a --reason x --until tomorrow":     `--until is "tomorrow"`,
		"prod-a --reason x --until -1h":          `--until is "-1h"`,
		"prod-a --reason x --timeout 0s":         "--timeout must be longer",
		"nope --reason x":                        "there is no Machine in any namespace",
		"prod-a --reason x --cluster y":          "there is no Machine in any namespace and cluster y",
		"prod-a b --reason x":                    "accepts 1 arg(s)",
		"prod-a --reason x --as-admin " + "a\tb": "characters that are not printed",
	} {
		_, err := run(t, flags().holdCommand(), strings.Split(args, " ")...)
		require.ErrorContains(t, err, says, args)
	}
}

func TestParseUntil(t *testing.T) {
	at, err := parseUntil("2026-10-04T01:00:00+02:00", october)
	require.NoError(t, err)
	require.Equal(t, october.Add(3*time.Hour), at.UTC())
	at, err = parseUntil("", october)
	require.NoError(t, err)
	require.Zero(t, at)
}

func TestRetryAndAbandon(t *testing.T) {
	c := management(t)
	f := connected(c)
	for annotation, decide := range map[string]func(*admin.Failures, context.Context, *clusterv1.Machine) error{
		refitv1.RetryAnnotation: (*admin.Failures).Retry, refitv1.AbandonAnnotation: (*admin.Failures).Abandon,
	} {
		out, err := run(t, failureCommand(&f, &cobra.Command{Use: "x"}, decide), "prod-a")
		require.NoError(t, err)
		require.Regexp(t, "^refit was asked to .* the update of Machine fleet/prod-a", out)
		var mu refitv1.MachineUpdate
		require.NoError(t, c.Get(t.Context(), types.NamespacedName{Namespace: "fleet", Name: "prod-a"}, &mu))
		require.Regexp(t, `^20.*Z alice$`, mu.Annotations[annotation])
	}
	_, err := run(t, failureCommand(&f, &cobra.Command{Use: "x"}, (*admin.Failures).Retry), "nope")
	require.ErrorContains(t, err, "there is no Machine")
}

func TestStatus(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "contexts": [{"name": "c", "context": {"cluster": "c", "namespace": "fleet"}}], "current-context": "c"}`), 0o600))
	flags := func() *statusFlags {
		return &statusFlags{managementFlags: connected(management(t)), clock: clocktesting.NewFakeClock(october)}
	}
	out, err := run(t, flags().command(), "--kubeconfig", kubeconfig)
	require.NoError(t, err)
	require.Equal(t, "NAME    PHASE   REASON      AGE  MESSAGE\nprod-a  Failed  NodeFailed  60s  no\n\n1 machine: 1 failed\n", out)
	out, err = run(t, flags().command(), "-A")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(out, "NAMESPACE  NAME"))
	out, err = run(t, flags().command(), "-A", "-o", "name")
	require.NoError(t, err)
	require.Equal(t, "machineupdate.capi-refit.dev/prod-a\n", out)
	out, err = run(t, flags().command(), "-A", "-o", "json", "prod-a")
	require.NoError(t, err)
	var list refitv1.MachineUpdateList
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	require.Equal(t, "MachineUpdateList", list.Kind)
	require.Equal(t, "MachineUpdate", list.Items[0].Kind)
	require.Equal(t, "NodeFailed", list.Items[0].Status.Reason)
	out, err = run(t, flags().command(), "-n", "empty", "-o", "yaml")
	require.Error(t, err, "an empty namespace is told apart from one that is not there")
	require.Empty(t, out)
	_, err = run(t, flags().command(), "-A", "-o", "xml")
	require.ErrorContains(t, err, "can be table, wide, json, yaml, name")
	_, err = run(t, flags().command(), "-A", "-w", "-o", "json")
	require.ErrorContains(t, err, "--watch shows a table")
	_, err = run(t, flags().command(), "-A", "-n", "fleet")
	require.ErrorContains(t, err, "exclude each other")
	_, err = run(t, flags().command(), "--kubeconfig", kubeconfig+".not")
	require.ErrorContains(t, err, "read the kubeconfig")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cmd := flags().command()
	cmd.SetArgs([]string{"-A", "--watch"})
	require.NoError(t, cmd.ExecuteContext(ctx))
}

func TestManagementClient(t *testing.T) {
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}`), 0o600))
	by := func(args ...string) *managementFlags {
		f := &managementFlags{}
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.addConnection(fs)
		require.NoError(t, fs.Parse(args))
		return f
	}
	c, err := by("--kubeconfig", kubeconfig).client()
	require.NoError(t, err)
	_, err = by("--kubeconfig", kubeconfig+".not").client()
	require.ErrorContains(t, err, "say where it is with --kubeconfig")

	locker, err := workloadNodes(c, kubeconfig, "leases")(t.Context(), types.NamespacedName{})
	require.NoError(t, err)
	require.NotNil(t, locker)
	_, err = workloadNodes(c, kubeconfig+".not", "leases")(t.Context(), types.NamespacedName{})
	require.Error(t, err)
	_, err = workloadNodes(management(t), "", "leases")(t.Context(), types.NamespacedName{Namespace: "fleet", Name: "prod"})
	require.ErrorContains(t, err, "--workload-kubeconfig")
}

func TestAuditVerify(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.jsonl")
	clock := clocktesting.NewFakePassiveClock(october)
	l, err := audit.Open(path, clock, audit.Options{Instance: "refit-0"})
	require.NoError(t, err)
	for range 3 {
		_, err := l.Append(audit.Entry{Event: audit.EventSent, Verb: "apply"})
		require.NoError(t, err)
		clock.SetTime(clock.Now().Add(time.Minute))
	}
	_, err = l.Append(audit.Entry{Event: audit.EventDone, Of: 1})
	require.NoError(t, err)
	head := l.Head()
	require.NoError(t, l.Close())

	verify := func(args ...string) (string, error) {
		return run(t, newAuditCommand(), append([]string{"verify"}, args...)...)
	}
	out, err := verify(path)
	require.NoError(t, err)
	require.Equal(t, "4 entries hold together, number 1 to 4, from 2026-10-03T20:00:00Z to 2026-10-03T20:03:00Z\n"+
		"2 commands have no end: they are under way, or refit ended first; the last one is entry 3\n"+
		"the last one is 4, with hash "+head.Hash+"\n", out)

	data, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.SplitAfter(string(data), "\n")
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	broken := file("broken", strings.Replace(string(data), `"apply"`, `"plan"`, 1))
	out, err = verify(broken)
	require.EqualError(t, err, "the log is broken: "+broken+": line 2: it does not follow from the line before, which was changed after this one was written, or else this one was")
	require.Contains(t, out, "1 entries hold together, number 1 to 1")

	rest := file("rest", strings.Join(lines[1:], ""))
	_, err = verify(rest)
	require.ErrorContains(t, err, "the log begins with entry 2, and entry 1 was expected")
	_, err = verify("--from", "2", rest)
	require.NoError(t, err)
	_, err = verify(file("first", lines[0]), rest)
	require.NoError(t, err)

	out, err = verify(file("torn", string(data)+"{"))
	require.NoError(t, err)
	require.Contains(t, out, "the last line is not complete")
	_, err = verify(file("empty", ""))
	require.ErrorContains(t, err, "there is no entry in")
	_, err = verify(path + ".not")
	require.ErrorIs(t, err, os.ErrNotExist)
	cmd := newAuditCommand()
	cmd.SetIn(bytes.NewReader(data))
	_, err = run(t, cmd, "verify", "-")
	require.NoError(t, err)
}

func TestAuditVerifyByHead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.jsonl")
	l, err := audit.Open(path, clocktesting.NewFakePassiveClock(october), audit.Options{Instance: "refit-0"})
	require.NoError(t, err)
	for range 3 {
		_, err := l.Append(audit.Entry{Event: audit.EventSent, Verb: "apply"})
		require.NoError(t, err)
	}
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	head := l.Tip()
	head.Log = "refit-a"
	text, err := json.Marshal(head.Sign(key))
	require.NoError(t, err)
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	heads := file("heads.yaml", "data:\n  refit-a.json: '"+string(text)+"'\n")
	public := file("public", base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey)))
	cut := file("cut", strings.Join(strings.SplitAfter(string(data), "\n")[:2], ""))
	lost := file("lost", `{"seq":1,"time":"2026-10-03T20:00:00Z","event":"lost","lost":{"what":"truncated","seq":9,"hash":"00"},"prev":""}`+"\n")

	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"whole":                     {[]string{"--head", heads, "--public-key", public, path}, ""},
		"whole, by its name":        {[]string{"--head", heads, "--public-key", public, "--log", "refit-a", path}, ""},
		"cut off":                   {[]string{"--head", heads, "--public-key", public, cut}, "the log is broken: the log was cut off: it ends with entry 2, and at 2026-10-03T20:00:00Z it had 3"},
		"cut off, without a head":   {[]string{cut}, ""},
		"known to have been":        {[]string{lost}, "entry 1 tells that what was there before it was cut off"},
		"another key":               {[]string{"--head", heads, "--public-key", file("other", base64.StdEncoding.EncodeToString(make([]byte, 32))), path}, "is not signed by the key"},
		"no key":                    {[]string{"--head", heads, path}, "--head needs --public-key"},
		"no head":                   {[]string{"--public-key", public, path}, "which is missing"},
		"a key that is none":        {[]string{"--head", heads, "--public-key", heads, path}, "--public-key: "},
		"a key that is not there":   {[]string{"--head", heads, "--public-key", public + ".not", path}, "no such file"},
		"heads that are none":       {[]string{"--head", public, "--public-key", public, path}, "--head: "},
		"heads that are not there":  {[]string{"--head", heads + ".not", "--public-key", public, path}, "no such file"},
		"two things from one stdin": {[]string{"--head", "-", "--public-key", public, "-"}, "not both"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, newAuditCommand(), append([]string{"verify"}, tc.args...)...)
			if tc.want != "" {
				require.ErrorContains(t, err, tc.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, slices.Contains(tc.args, "--head"), strings.Contains(out, "it has entry 3, which log refit-a had on 2026-10-03T20:00:00Z by its signed head"))
		})
	}
	cmd := newAuditCommand()
	cmd.SetIn(bytes.NewReader(text))
	_, err = run(t, cmd, "verify", "--head", "-", "--public-key", public, path)
	require.NoError(t, err)
}

func TestPeoplesCommandsAreThere(t *testing.T) {
	for _, cmd := range []*cobra.Command{newHoldCommand(), newReleaseCommand(), newRetryCommand(), newAbandonCommand(), newDriftCommand(), newStatusCommand(), newAuditCommand()} {
		require.NotEmpty(t, cmd.Short)
		cmd.SetOut(&bytes.Buffer{})
		cmd.SetArgs([]string{"--help"})
		require.NoError(t, cmd.ExecuteContext(t.Context()))
	}
}
