package users_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/updaters/updatertest"
	"github.com/capi-refit/refit/updaters/users"
)

// FuzzUser has any text in each field of a user: what then is wanted on the node can't break out of the line of the file
// that it ends up in, and what is claimed is wanted.
func FuzzUser(f *testing.F) {
	for _, seed := range []string{
		"alice", "/bin/bash", hash, "ALL=(ALL) NOPASSWD:ALL", "adm, sudo", key1, "'a'", `"a\nb"`, "a: b", "a #b", "{{ a }}", "- a", "!!binary YQ==", "&a b", "|", "a\x00b",
	} {
		f.Add("shell", seed)
		f.Add("name", seed)
		f.Add("sshAuthorizedKeys", seed)
	}
	f.Fuzz(func(t *testing.T, field, value string) {
		entry := map[string]any{"name": "alice"}
		entry[field] = value
		if field == "sshAuthorizedKeys" {
			entry[field] = []any{value}
		}
		raw, err := json.Marshal(map[string]any{"users": []any{entry}})
		require.NoError(t, err)

		got, err := users.New(rules()).Desire(desired(t, string(raw)))
		require.NoError(t, err)
		if len(got) == 0 {
			return // it has no name
		}
		u := *got[0].User
		c := updatertest.Case{
			Object: fieldset.BootstrapConfig, APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig", Current: `{}`, Desired: string(raw),
		}
		claim, err := users.New(rules()).Claim(t.Context(), c.Change(t))
		require.NoError(t, err)
		if len(claim.Covered) > 0 {
			require.False(t, u.Unmanaged, "what is claimed has to be made")
		}
		if u.Unmanaged {
			return
		}
		for _, s := range append([]string{u.Name, u.Gecos, u.HomeDir, u.PrimaryGroup, u.Shell, u.PasswordHash, u.Sudo}, append(u.Groups, u.SSHAuthorizedKeys...)...) {
			require.False(t, strings.ContainsFunc(s, unicode.IsControl), "%q", s)
		}
		for _, s := range append([]string{u.Name, u.Gecos, u.HomeDir, u.PrimaryGroup, u.Shell, u.PasswordHash}, u.Groups...) {
			require.NotContains(t, s, ":", "it separates the fields of passwd, shadow and group")
		}
	})
}
