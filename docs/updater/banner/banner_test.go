package banner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/updatertest"
)

func acme(current, desired string) updatertest.Case {
	return updatertest.Case{
		Current: current, Desired: desired, Object: updaters.BootstrapConfig, APIVersion: "bootstrap.acme.example/v1", Kind: "AcmeConfig",
	}
}

func TestUpdaterConforms(t *testing.T) {
	updatertest.Conform(t, New(updaters.BuiltinRules()), map[string]updatertest.Case{
		"a banner comes":              acme(`{}`, `{"banner":"hello"}`),
		"a banner changes":            acme(`{"banner":"hello"}`, `{"banner":"good evening"}`),
		"a banner goes":               acme(`{"banner":"hello"}`, `{}`),
		"a banner that is none":       acme(`{}`, `{"banner":{"text":"hello"}}`),
		"a banner that is expanded":   acme(`{}`, `{"banner":"\\n"}`),
		"another field":               acme(`{"colour":"red"}`, `{"colour":"blue","banner":"hello"}`),
		"a field that is named alike": acme(`{}`, `{"bannerFont":"a"}`),
	})
}

func TestClaim(t *testing.T) {
	for name, tc := range map[string]struct {
		updatertest.Case
		rules         updaters.Rules
		covered, left int
	}{
		"it takes what the rules say":            {acme(`{}`, `{"banner":"hello"}`), updaters.BuiltinRules(), 1, 0},
		"without a rule it is left":              {acme(`{}`, `{"banner":"hello"}`), updaters.Rules{}, 0, 1},
		"what a terminal would expand is left":   {acme(`{}`, `{"banner":"\\n"}`), updaters.BuiltinRules(), 0, 1},
		"what belongs to others is left to them": {acme(`{}`, `{"colour":"red"}`), updaters.BuiltinRules(), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			claim, err := New(tc.rules).Claim(t.Context(), tc.Change(t))
			require.NoError(t, err)
			require.Len(t, claim.Covered, tc.covered)
			require.Len(t, claim.Left, tc.left)
		})
	}
}

func TestDesire(t *testing.T) {
	desire := func(spec map[string]any) string {
		rs, err := New(updaters.BuiltinRules()).(updaters.NodeUpdater).Desire(updaters.Desired{
			BootstrapConfig: updaters.Spec{APIVersion: "bootstrap.acme.example/v1", Kind: "AcmeConfig", Value: spec},
		})
		require.NoError(t, err)
		if len(rs) == 0 {
			return "nothing"
		}
		require.Len(t, rs, 1)
		if rs[0].File.Unmanaged {
			return "unmanaged"
		}
		return string(rs[0].File.Content)
	}
	require.Equal(t, "hello\n", desire(map[string]any{"banner": "hello"}))
	require.Equal(t, "nothing", desire(map[string]any{}))
	require.Equal(t, "unmanaged", desire(map[string]any{"banner": `\n`}))
}

// TestThePageShowsTheCode: what people copy is what is compiled and tested.
func TestThePageShowsTheCode(t *testing.T) {
	page := readFile(t, filepath.Join("..", "..", "write-an-updater.md"))
	require.Contains(t, page, "```go\n"+readFile(t, "banner.go")+"```\n")
	_, conforms, _ := strings.Cut(readFile(t, "banner_test.go"), "func TestUpdaterConforms")
	conforms, _, _ = strings.Cut(conforms, "\n}\n")
	require.Contains(t, page, "func TestUpdaterConforms"+conforms+"\n}\n")
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(data)
}
