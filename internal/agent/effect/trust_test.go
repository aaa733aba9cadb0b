package effect

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
	"github.com/capi-refit/refit/internal/disruption"
)

func TestTrustIsVerified(t *testing.T) {
	ours, others := string(staticpodtest.NewAuthority(t).PEM), string(staticpodtest.NewAuthority(t).PEM)
	const file, bundle = "/usr/local/share/ca-certificates/ours.crt", "/etc/ssl/certs/ca-certificates.crt"
	for name, tc := range map[string]struct {
		before, after string
		files         map[string]string
		none          bool // the rule does not have the store updated
		note, wrong   string
	}{
		"one that is trusted":               {after: ours, files: map[string]string{bundle: others + ours}},
		"one that is not":                   {after: ours, files: map[string]string{bundle: others}, wrong: file + " holds a certificate (CN=kubernetes) that is not in " + bundle},
		"one of two":                        {after: ours + others, files: map[string]string{bundle: others}, wrong: "is not in"},
		"one that is gone":                  {before: ours, files: map[string]string{bundle: others}},
		"one whose file is gone only":       {before: ours, files: map[string]string{bundle: others + ours}, wrong: "a certificate (CN=kubernetes) whose file is gone is still in " + bundle},
		"one that is replaced":              {before: others, after: ours, files: map[string]string{bundle: ours}},
		"one that is replaced on disk only": {before: others, after: ours, files: map[string]string{bundle: others}, wrong: "is not in"},
		"one that the distribution has, too": {
			before: ours, files: map[string]string{bundle: ours, "/usr/share/ca-certificates/mozilla/ours.crt": ours},
		},
		"a node whose bundle is elsewhere": {after: ours, note: "is not known"},
		"a rule that leaves it as it is":   {after: ours, none: true, files: map[string]string{bundle: others}},
		"no certificate":                   {after: "# none", files: map[string]string{bundle: others}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEffects(t, tc.files)
			c := Change{Path: file, Actions: []disruption.Action{{Type: disruption.TrustStoreUpdate}}}
			if tc.none {
				c.Actions[0].Type = disruption.Reboot
			}
			if tc.before != "" {
				c.Before = []byte(tc.before)
			}
			n, _, err := e.Note(t.Context(), []Change{c}, Base{})
			require.NoError(t, err)
			if tc.after != "" {
				at := filepath.Join(e.Host.Dir, file)
				require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
				require.NoError(t, os.WriteFile(at, []byte(tc.after), 0o600))
			}
			notes, err := e.Verify(t.Context(), n, false)
			if tc.wrong == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.wrong)
			}
			if tc.note == "" {
				require.Empty(t, notes)
			} else {
				require.Contains(t, notes[0], tc.note)
			}
		})
	}
}
