package updates

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
)

// builtinRow says how a machine shows one row of disruption.Builtin().
type builtinRow struct {
	// files come, and go again.
	files []rowFile
	// shows is a command on the machine that never fails. What it writes has want in it as long as the files are in effect, and no longer.
	shows, want string
	// fake says what of it is not genuine.
	fake string
}

// rowFile is an entry of spec.files. Its mode is 0644 where it has none.
type rowFile struct{ path, content, mode string }

// batch is rows whose files come in one run, and go in another one.
type batch struct {
	name string
	// prepare are commands by which a machine becomes one that the rows are for.
	prepare []string
	rows    map[string]builtinRow
}

// otherTest is where a row is shown that a Debian machine can't show.
type otherTest struct {
	// file is below the repository's root, and name that of a function in it.
	file, name string
	// fake says what of it is not genuine.
	fake string
}

// TestEveryBuiltinRow fails for a row of the built-in table that nothing shows, on a machine or elsewhere.
func TestEveryBuiltinRow(t *testing.T) {
	table := disruption.Builtin()
	shown := map[string]int{}
	for _, b := range slices.Concat(whileRunning, byBooting) {
		for path, row := range b.rows {
			shown[path]++
			t.Run(path, func(t *testing.T) { row.check(t, table, path) })
		}
	}
	for path, other := range elsewhereRows {
		shown[path]++
		t.Run(path, func(t *testing.T) {
			require.Contains(t, other.check(t), path, "%s is not about it", other.file)
		})
	}
	for _, rule := range table {
		require.Equal(t, 1, shown[rule.Path], "%s has to be shown in one place: on a machine, or by a test elsewhere", rule.Path)
		delete(shown, rule.Path)
	}
	require.Empty(t, shown, "no such rows")
	for domain := range disruption.BuiltinRules().Domains {
		other, ok := domains[domain]
		require.True(t, ok, "%s has to be shown somewhere", domain)
		t.Run(string(domain), func(t *testing.T) { other.check(t) })
	}
}

func (o otherTest) check(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "..", o.file))
	require.NoError(t, err)
	require.True(t, strings.Contains(string(source), "\nfunc "+o.name+"(") || strings.Contains(string(source), "\nfunc (u *suite) "+o.name+"("),
		"%s has no %s", o.file, o.name)
	return string(source)
}

// domains are the rows that are no files.
var domains = map[disruption.Domain]otherTest{
	disruption.SSHKeys:           {file: "test/updates/users_test.go", name: "TestUsers"},
	disruption.Users:             {file: "test/updates/users_test.go", name: "TestUsers"},
	disruption.NTP:               {file: "test/updates/ntp_test.go", name: "TestTimesyncd"},
	disruption.KubeletArguments:  {file: "test/e2e/fields_test.go", name: "kubeletArguments"},
	disruption.Taints:            {file: "test/e2e/fields_test.go", name: "otherFields"},
	disruption.ControlPlane:      {file: "test/e2e/controlplane_test.go", name: "controlPlaneFields"},
	disruption.KubernetesVersion: {file: "test/e2e/version_test.go", name: "newWorkers"},
}

func (row builtinRow) check(t *testing.T, table disruption.Table, path string) {
	t.Helper()
	require.NotEmpty(t, row.files)
	require.NotEmpty(t, row.shows)
	require.NotEmpty(t, row.want)
	for _, f := range row.files {
		counts := ""
		for _, rule := range table {
			if (f.path == rule.Path || strings.HasPrefix(f.path, rule.Path+"/")) && len(rule.Path) > len(counts) {
				counts = rule.Path
			}
		}
		require.Equal(t, path, counts, "the row that counts for %s", f.path)
	}
}

// elsewhereRows are shown by other tests: a Debian machine has no kubeadm and no kubelet that runs static pods.
var elsewhereRows = map[string]otherTest{
	"/etc/kubernetes/audit-policy.yaml":     {file: "test/e2e/audit_test.go", name: "auditPolicy"},
	"/etc/kubernetes/audit":                 podsOfFakes,
	"/etc/kubernetes/admission-config.yaml": podsOfFakes,
	"/etc/kubernetes/admission":             podsOfFakes,
	"/etc/kubernetes/manifests":             podsOfFakes,
	disruption.KubeadmPatches: {
		file: "test/e2e/fields_test.go", name: "kubeletPatches",
	},
	"/etc/kernel/cmdline":    {file: "internal/agent/effect/boot_test.go", name: "TestKernelInstall", fake: "kernel-install"},
	"/etc/kernelstub":        ofOthers,
	"/etc/mkinitcpio.conf":   ofOthers,
	"/etc/mkinitcpio.conf.d": ofOthers,
}

var ofOthers = otherTest{
	file: "internal/agent/byfiles_test.go", name: "TestProgramsOfOtherDistributions", fake: "mkinitcpio and kernelstub, which Debian does not have",
}

var podsOfFakes = otherTest{
	file: "internal/agent/podrefresh_test.go", name: "TestRowsThatStaticPodsRead", fake: "the kubelet, the container runtime and the API server",
}
