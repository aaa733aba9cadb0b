package kubeadmconfig_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/updaters/kubeadmconfig"
	"github.com/capi-refit/refit/updaters/updatertest"
)

func TestText(t *testing.T) {
	for name, tc := range map[string]struct{ value, want, err string }{
		"a word":                        {"/bin/bash", "/bin/bash", ""},
		"a sudo rule":                   {"ALL=(ALL) NOPASSWD:ALL", "ALL=(ALL) NOPASSWD:ALL", ""},
		"blanks around":                 {" a ", "a", ""},
		"single quotes":                 {"'a: #b'", "a: #b", ""},
		"double quotes":                 {`"a\tb: c"`, "", "control character"},
		"an escape":                     {`"a\x41"`, "aA", ""},
		"quotes that are a part":        {`a "b"`, `a "b"`, ""},
		"quotes around a part":          {`"a" b`, "", "put quotes into the value"},
		"a number":                      {"12", "", "put quotes into the value"},
		"a flag":                        {"yes", "", "put quotes into the value"},
		"a list":                        {"[a]", "", "put quotes into the value"},
		"a date":                        {"2026-01-01", "", "put quotes into the value"},
		"a number to the base of sixty": {"1:2:3:4:5:6:7:8", "", "put quotes into the value"},
		"an IPv6 address":               {"2001:db8::1", "2001:db8::1", ""},
		"a line separator":              {"a\u2028b", "", "line break"},
		"a comment":                     {"a #b", "", "put quotes into the value"},
		"a key":                         {"a: b", "", "put quotes into the value"},
		"an anchor":                     {"&a b", "", "put quotes into the value"},
		"a tag":                         {"!!binary YQ==", "", "put quotes into the value"},
		"a block":                       {"|", "", "put quotes into the value"},
		"nothing":                       {"", "", "put quotes into the value"},
		"a line break":                  {"a\nb", "", "line break"},
		"a carriage return":             {"a\rb", "", "line break"},
		"Jinja":                         {"{{ a }}", "", "Jinja"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := kubeadmconfig.Text(tc.value, "")
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
	got, err := kubeadmconfig.Text("a {{ b }}", kubeadmconfig.Ignition)
	require.NoError(t, err)
	require.Equal(t, "a {{ b }}", got, "Ignition knows no Jinja")
}

// FuzzText compares with what the line means in the document that the bootstrap provider makes of it.
func FuzzText(f *testing.F) {
	for _, seed := range []string{"a", "'a'", `"a"`, "a: b", "a #b", "[a]", "*a", "&a b", "? a", "- a", "|", "''", "a'b", "\u0085", "A\u00a0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got, err := kubeadmconfig.Text(value, kubeadmconfig.Ignition)
		if err != nil {
			return
		}
		require.False(t, strings.ContainsFunc(got, unicode.IsControl))
		var doc struct {
			Users []map[string]any `json:"users"`
		}
		require.NoError(t, yaml.Unmarshal([]byte("users:\n  - name: x\n    shell: "+value+"\n    gecos: end\n"), &doc))
		require.Equal(t, []map[string]any{{"name": "x", "shell": got, "gecos": "end"}}, doc.Users)
	})
}

func TestFields(t *testing.T) {
	c := updatertest.Case{
		Object: fieldset.BootstrapConfig, APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig",
		Current: `{"users":[{"name":"alice"}]}`, Desired: `{"format":"ignition","users":[{"name":"alice","passwdFrom":{"secret":{"name":"s"}}},1]}`,
	}
	oc, ok := kubeadmconfig.Change(c.Change(t))
	require.True(t, ok)
	require.Equal(t, kubeadmconfig.Ignition, kubeadmconfig.Format(oc.Desired))
	require.Len(t, kubeadmconfig.List(oc.Desired, "users"), 1, "what is no mapping is left out")
	require.Empty(t, kubeadmconfig.List(oc.Desired, "files"))
	require.Equal(t, []string{"format"}, kubeadmconfig.Location(oc.Fields[0]))

	c.Desired = `{"users":[{"name":"alice","passwdFrom":{"secret":{"name":"s"}}}]}`
	oc, ok = kubeadmconfig.Change(c.Change(t))
	require.True(t, ok)
	f := oc.Fields[0]
	require.Equal(t, []string{"users", "passwdFrom", "secret", "name"}, kubeadmconfig.Location(f))
	require.True(t, kubeadmconfig.Below(f, "users", "passwdFrom"))
	require.False(t, kubeadmconfig.Below(f, "users", "passwd"))
	name, ok := kubeadmconfig.Item(f, "name")
	require.True(t, ok)
	require.Equal(t, "alice", name)
	_, ok = kubeadmconfig.Item(f, "path")
	require.False(t, ok)

	c.Kind = "OtherConfig"
	_, ok = kubeadmconfig.Change(c.Change(t))
	require.False(t, ok)
	_, ok = kubeadmconfig.Change(nil)
	require.False(t, ok)
	require.Nil(t, kubeadmconfig.Mapping(fieldset.Spec{}, "a", "b"))
}
