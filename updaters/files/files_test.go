package files_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/files"
	"github.com/capi-refit/refit/updaters/updatertest"
)

func updater(t testing.TB) *files.Updater {
	allowed, err := disruption.AllowPaths([]string{"/etc/app"})
	require.NoError(t, err)
	return files.New(disruption.Rules{Files: slices.Concat(disruption.Builtin(), allowed, disruption.Table{
		{Path: "/etc/boot", Actions: []disruption.Action{{Type: disruption.Reboot}}},
		{Path: "/etc/fstab", Actions: []disruption.Action{{Type: disruption.Replace}}},
	})})
}

func kubeadm(current, desired string) updatertest.Case {
	return updatertest.Case{
		Object: fieldset.BootstrapConfig, APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig",
		Current: `{"files":[` + current + `]}`, Desired: `{"files":[` + desired + `]}`,
	}
}

const app = `{"path":"/etc/app/a","content":"1\n"}`

// claims are what is said of one file: its actions, or why it is left.
var claims = map[string]struct {
	updatertest.Case
	want string
}{
	"content":                           {kubeadm(app, `{"path":"/etc/app/a","content":"2\n"}`), "None"},
	"added":                             {kubeadm("", app), "None"},
	"removed":                           {kubeadm(app, ""), "None"},
	"owner, permissions and encoding":   {kubeadm(app, `{"path":"/etc/app/a","content":"Mgo=","encoding":"base64","owner":"ops:ops","permissions":"0600"}`), "None|None|None|None"},
	"content out of a Secret":           {kubeadm(app, `{"path":"/etc/app/a","contentFrom":{"secret":{"name":"s","key":"k"}}}`), "None|None|None"},
	"a reload":                          {kubeadm("", `{"path":"/etc/ssh/sshd_config.d/x.conf","content":"x"}`), "Reload ssh.service"},
	"a drop-in of a unit":               {kubeadm("", `{"path":"/etc/systemd/system/kubelet.service.d/x.conf","content":"x"}`), "DaemonReload,Restart kubelet.service"},
	"the order":                         {kubeadm(app+`,{"path":"/b"}`, `{"path":"/b"},`+app), "None"},
	"a path that no rule names":         {kubeadm("", `{"path":"/etc/other","content":"x"}`), "no rule says"},
	"a removed file that no rule names": {kubeadm(`{"path":"/etc/other","content":"x"}`, ""), "no rule says"},
	"a drain":                           {kubeadm("", `{"path":"/etc/containerd/config.toml","content":"x"}`), "Drain,Restart containerd.service"},
	"a reboot":                          {kubeadm("", `{"path":"/etc/boot","content":"x"}`), "Reboot"},
	"a boot loader":                     {kubeadm("", `{"path":"/etc/default/grub","content":"x"}`), "RebuildBootloader,Reboot"},
	"a replacement":                     {kubeadm("", `{"path":"/etc/fstab","content":"x"}`), "not made in place: the rule for it says Replace"},
	"a static pod":                      {kubeadm("", `{"path":"/etc/kubernetes/manifests/a.yaml","content":"x"}`), "StaticPodRefresh"},
	"append":                            {kubeadm(app, `{"path":"/etc/app/a","content":"1\n","append":true}`), "append is not idempotent"},
	"what was appended":                 {kubeadm(`{"path":"/etc/app/a","content":"1\n","append":true}`, ""), "can't be taken back"},
	"a template":                        {kubeadm("", `{"path":"/etc/app/a","content":"1","contentFormat":"Template"}`), "rendered by the bootstrap provider only"},
	"a field of the future":             {kubeadm("", `{"path":"/etc/app/a","content":"1","selinux":"x"}`), `does not know the field "selinux"`},
	"an unknown encoding":               {kubeadm("", `{"path":"/etc/app/a","content":"1","encoding":"rot13"}`), `unknown encoding "rot13"`},
	"content that is not what the encoding is": {kubeadm("", `{"path":"/etc/app/a","content":"%","encoding":"base64"}`), "not valid base64"},
	"Jinja":                          {kubeadm("", `{"path":"/etc/app/a","content":"{{ ds.meta_data.hostname }}"}`), "Jinja"},
	"carriage returns":               {kubeadm("", `{"path":"/etc/app/a","content":"a\r\n"}`), "carriage returns"},
	"permissions that are no number": {kubeadm("", `{"path":"/etc/app/a","content":"1","permissions":"u=rw"}`), "not octal digits"},
	"an owner that could be a path":  {kubeadm("", `{"path":"/etc/app/a","content":"1","owner":"../x:y"}`), "not of the form user:group"},
	"a path that climbs":             {kubeadm("", `{"path":"/etc/app/../shadow","content":"1"}`), "not clean"},
	"two files with one path":        {kubeadm(app, app+","+app), "two files have the same path"},
}

func TestClaim(t *testing.T) {
	for name, tc := range claims {
		t.Run(name, func(t *testing.T) {
			claim, err := updater(t).Claim(t.Context(), tc.Change(t))
			require.NoError(t, err)
			if len(claim.Left) > 0 {
				require.Empty(t, claim.Covered, "a file is claimed as a whole or not at all")
				require.Contains(t, claim.Left[0].Reason, tc.want)
				return
			}
			var got []string
			for _, c := range claim.Covered {
				var actions []string
				for _, a := range c.Actions {
					actions = append(actions, a.String())
				}
				got = append(got, strings.Join(actions, ","))
			}
			require.Equal(t, tc.want, strings.Join(got, "|"))
		})
	}
}

func TestConformance(t *testing.T) {
	cases := map[string]updatertest.Case{
		"another field": {
			Object: fieldset.BootstrapConfig, APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig",
			Current: `{}`, Desired: `{"ntp":{"enabled":true}}`,
		},
		"files of another kind": {
			Object: fieldset.BootstrapConfig, APIVersion: "bootstrap.example.org/v1", Kind: "OtherConfig",
			Current: `{}`, Desired: `{"files":[{"path":"/etc/app/a"}]}`,
		},
		"files of an infrastructure machine": {
			Object: fieldset.InfrastructureMachine, APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig",
			Current: `{}`, Desired: `{"files":[{"path":"/etc/app/a"}]}`,
		},
	}
	for name, tc := range claims {
		cases[name] = tc.Case
	}
	updatertest.Conform(t, updater(t), cases)
}

func desired(t testing.TB, spec string) updaters.Desired {
	v, err := fieldset.Decode([]byte(spec))
	require.NoError(t, err)
	return updaters.Desired{
		BootstrapConfig: fieldset.Spec{APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig", Value: v},
		Secret: func(name, key string) ([]byte, error) {
			if name == "s" && key == "k" {
				return []byte("from a secret"), nil
			}
			return nil, errors.New("no such Secret")
		},
	}
}

func gzipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

func TestDesire(t *testing.T) {
	file := func(content, owner, mode string) *node.File {
		return &node.File{Path: "/etc/app/a", Content: []byte(content), Owner: owner, Mode: mode}
	}
	for name, tc := range map[string]struct {
		file string
		want *node.File
	}{
		"defaults are cloud-init's":           {`"content":"x\n"`, file("x\n", "root:root", "0644")},
		"plain content ends with one newline": {`"content":"x"`, file("x\n", "root:root", "0644")},
		"and with one only":                   {`"content":"x\n\n\n"`, file("x\n", "root:root", "0644")},
		"base64 is taken as it is":            {`"content":"eA==","encoding":"base64"`, file("x", "root:root", "0644")},
		"base64 on several lines":             {`"content":"eA\n==\n","encoding":"base64"`, file("x", "root:root", "0644")},
		"gzip+base64":                         {fmt.Sprintf(`"content":%q,"encoding":"gzip+base64"`, gzipped("hello")), file("hello", "root:root", "0644")},
		"a Secret": {`"contentFrom":{"secret":{"name":"s","key":"k"}}`, &node.File{
			Path: "/etc/app/a", Content: []byte("from a secret\n"), Owner: "root:root", Mode: "0644", FromSecret: true,
		}},
		"owner without group is in root's":          {`"content":"x\n","owner":"ops"`, file("x\n", "ops:root", "0644")},
		"short permissions":                         {`"content":"x\n","permissions":"600"`, file("x\n", "root:root", "0600")},
		"what can't be made in place is left alone": {`"content":"x\n","append":true`, &node.File{Path: "/etc/app/a", Unmanaged: true}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := updater(t).Desire(desired(t, `{"files":[{"path":"/etc/app/a",`+tc.file+`}]}`))
			require.NoError(t, err)
			require.Equal(t, []node.Resource{{File: tc.want}}, got)
		})
	}
}

func TestDesireWithIgnitionIsVerbatim(t *testing.T) {
	got, err := updater(t).Desire(desired(t, `{"format":"ignition","files":[{"path":"/etc/app/a","content":"{{ x }}"}]}`))
	require.NoError(t, err)
	require.Equal(t, "{{ x }}", string(got[0].File.Content))
}

func TestDesireErrors(t *testing.T) {
	for name, file := range map[string]string{
		"a Secret that is not there":        `"contentFrom":{"secret":{"name":"other","key":"k"}}`,
		"a Secret that is not what it says": `"encoding":"gzip","contentFrom":{"secret":{"name":"s","key":"k"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := updater(t).Desire(desired(t, `{"files":[{"path":"/etc/app/a",`+file+`}]}`))
			require.ErrorContains(t, err, "/etc/app/a")
			require.NotContains(t, err.Error(), "from a secret", "errors show no content")
		})
	}
}
