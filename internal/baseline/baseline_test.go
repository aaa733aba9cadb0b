package baseline

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
)

// bootstrapData is of the form in which Cluster API's kubeadm bootstrap provider renders it.
const bootstrapData = `## template: jinja
#cloud-config

write_files:
-   path: /etc/kubernetes/pki/ca.key
    owner: root:root
    permissions: '0600'
    content: |
      -----BEGIN TOP SECRET-----

-   path: /etc/app/plain
    content: |
      hello
      
-   path: /etc/app/packed
    encoding: "gzip+base64"
    owner: ops:ops
    permissions: '640'
    content: |
      H4sIAAAAAAAAA8tIzcnJ5wIAIDA6NgYAAAA=
-   path: /etc/app/log
    append: true
    content: |
      more
-   path: /etc/app/plain
    content: |
      hello again
runcmd:
  - kubeadm join
`

func file(path, content, owner, mode string) node.BaselineFile {
	sum := sha256.Sum256([]byte(content))
	return node.BaselineFile{Path: path, SHA256: hex.EncodeToString(sum[:]), Owner: owner, Mode: mode}
}

func TestCloudConfigBaseline(t *testing.T) {
	b, err := Parse("cloud-config", []byte(bootstrapData))
	require.NoError(t, err)
	require.Equal(t, []node.BaselineFile{
		file("/etc/app/packed", "hello\n", "ops:ops", "0640"),
		file("/etc/app/plain", "hello again\n", "root:root", "0644"),
		file("/etc/kubernetes/pki/ca.key", "-----BEGIN TOP SECRET-----\n", "root:root", "0600"),
	}, b.Baseline.Files)
}

func TestIgnitionBaseline(t *testing.T) {
	b, err := Parse("ignition", []byte(`{"ignition":{"version":"2.3.0"},"storage":{"files":[
		{"filesystem":"root","path":"/etc/app/a","contents":{"source":"data:,hello%20%25%0A"},"mode":420},
		{"path":"/etc/app/b","contents":{"source":"data:;base64,aGVsbG8K"},"mode":384,"user":{"id":1000},"group":{"name":"ops"}},
		{"path":"/etc/app/c","append":true,"contents":{"source":"data:,x"}},
		{"path":"/etc/app/d","contents":{"source":"https://example.org/d"}}]}}`))
	require.NoError(t, err)
	require.Equal(t, []node.BaselineFile{
		file("/etc/app/a", "hello %\n", "root:root", "0644"), file("/etc/app/b", "hello\n", "1000:ops", "0600"),
	}, b.Baseline.Files)
}

func TestBaselineErrorsShowNothing(t *testing.T) {
	for name, tc := range map[string]struct{ format, data string }{
		"no YAML":     {"cloud-config", "hunter2: [: hunter2"},
		"no base64":   {"cloud-config", "write_files:\n- path: /a\n  encoding: base64\n  content: hunter2%\n"},
		"no encoding": {"cloud-config", "write_files:\n- path: /a\n  encoding: rot13\n  content: hunter2\n"},
		"no JSON":     {"ignition", "hunter2"},
		"no data URL": {"ignition", `{"storage":{"files":[{"path":"/a","contents":{"source":"data:,%zzhunter2"}}]}}`},
		"no flag":     {"cloud-config", "write_files:\n- path: /a\n  append: hunter2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(tc.format, []byte(tc.data))
			require.Error(t, err)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}
