package engine

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOverlaps(t *testing.T) {
	_, ours, err := net.ParseCIDR("10.213.0.0/16")
	require.NoError(t, err)
	for name, test := range map[string]struct {
		address string
		want    bool
	}{
		"a network beside ours":    {"10.214.0.1/16", false},
		"an address in ours":       {"10.213.7.1/24", true},
		"a network that has ours":  {"10.0.0.1/8", true},
		"another family's address": {"fe80::1/64", false},
	} {
		t.Run(name, func(t *testing.T) {
			ip, network, err := net.ParseCIDR(test.address)
			require.NoError(t, err)
			network.IP = ip // as interfaces say it
			assert.Equal(t, test.want, overlaps(ours, []net.Addr{network}))
		})
	}
}

// TestRuntime runs the stand-in for runc with one that does nothing.
func TestRuntime(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o700))
		return path
	}
	write("runc", "#!/bin/sh\necho \"$@\" >\"$(dirname \"$0\")/called\"\n")
	runtime := write("runtime", string(runtimeScript))
	config := write("config.json", `{"bounding":["CAP_CHOWN","CAP_SYS_RESOURCE"],"permitted":["CAP_SYS_RESOURCE","CAP_KILL"],"oomScoreAdj":-500}`)
	process := write("process.json", `["CAP_A","CAP_SYS_RESOURCE","CAP_B"]`)

	cmd := exec.CommandContext(t.Context(), runtime, "exec", "--process", process, "--bundle", dir, "it")
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))

	for path, want := range map[string]string{
		config:                       `{"bounding":["CAP_CHOWN"],"permitted":["CAP_KILL"],"oomScoreAdj":0}`,
		process:                      `["CAP_A","CAP_B"]`,
		filepath.Join(dir, "called"): "exec --process " + process + " --bundle " + dir + " it\n",
	} {
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}
}
