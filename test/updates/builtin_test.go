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
			source, err := os.ReadFile(filepath.Join("..", "..", other.file))
			require.NoError(t, err)
			require.True(t, strings.Contains(string(source), "\nfunc "+other.name+"(") || strings.Contains(string(source), "\nfunc (u *suite) "+other.name+"("),
				"%s has no %s", other.file, other.name)
			require.Contains(t, string(source), path, "%s is not about it", other.file)
		})
	}
	for _, rule := range table {
		require.Equal(t, 1, shown[rule.Path], "%s has to be shown in one place: on a machine, or by a test elsewhere", rule.Path)
		delete(shown, rule.Path)
	}
	require.Empty(t, shown, "no such rows")
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
		file: "internal/agent/kubelet/config_test.go", name: "TestAChangedPatchOfTheKubeletsConfiguration", fake: "kubeadm",
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
