package protection

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-refit/refit/internal/drain"
	"github.com/capi-refit/refit/internal/lease"
)

// TestRemovalInAnEmergency: the commands with which people remove what refit has left find all of it and take all of it away.
func TestRemovalInAnEmergency(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "troubleshooting.md"))
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(data), "\n## Remove refit in an emergency\n")
	section = strings.ReplaceAll(section, "\\\n", "")
	words := func(command string) (all []string) {
		for _, line := range regexp.MustCompile(`(?m)^.*kubectl `+command+` .*$`).FindAllString(section, -1) {
			all = append(all, strings.Fields(line)...)
		}
		return all
	}
	machines, nodes := []string{AddedAnnotation, HoldAddedAnnotation}, []string{AddedAnnotation, HoldAddedAnnotation, UpdatingAnnotation, drain.CordonedAnnotation}
	for _, key := range machines {
		require.Contains(t, words("annotate machine"), key+"-")
	}
	for _, key := range append(nodes, lease.HoldByAnnotation, lease.HoldReasonAnnotation) {
		require.Contains(t, append(words("annotate node"), words("annotate machine")...), key+"-")
	}
	for _, m := range append(machineMarkers, heldMachineMarkers...) {
		require.Contains(t, words("annotate machine"), m.key+"-")
	}
	for _, m := range nodeMarkers {
		command := "annotate node"
		if m.label {
			command = "label node"
		}
		require.Contains(t, words(command), m.key+"-")
	}
	for what, keys := range map[string][]string{"machines": machines, "nodes": nodes} {
		script := regexp.MustCompile(`kubectl get ` + what + ` [^|]*\| jq -r '([^']*)'`).FindStringSubmatch(section)
		require.NotNil(t, script)
		requireFound(t, script[1], keys)
	}
}

// requireFound has jq run a script over objects of which each has one of the keys, and one that has none.
func requireFound(t *testing.T, script string, keys []string) {
	t.Helper()
	list := []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "neither"}}}
	for _, key := range keys {
		require.Contains(t, script, `"`+key+`"`)
		list = append(list, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "has-" + filepath.Base(key), Annotations: map[string]string{key: "x"}}})
	}
	jq, err := exec.LookPath("jq")
	if err != nil {
		return // the names are there; whether the script works is seen where there is jq
	}
	input, err := json.Marshal(map[string]any{"items": list})
	require.NoError(t, err)
	cmd := exec.Command(jq, "-r", script)
	cmd.Stdin = strings.NewReader(string(input))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, key := range keys {
		require.Contains(t, string(out), "has-"+filepath.Base(key)+": x\n")
	}
	require.NotContains(t, string(out), "neither")
}
