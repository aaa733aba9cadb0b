package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/server"
)

// pages are all that people read.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", filepath.Join("docs", "*.md"), filepath.Join("docs", "adr", "*.md")} {
		some, err := filepath.Glob(filepath.Join("..", "..", pattern))
		require.NoError(t, err)
		require.NotEmpty(t, some, pattern)
		all = append(all, some...)
	}
	return all
}

// TestReasonsAreDocumented reads the reasons where they are declared or given.
func TestReasonsAreDocumented(t *testing.T) {
	page := readPage(t, filepath.Join(docsDir, "troubleshooting.md"))
	types := readPage(t, filepath.Join("..", "..", "api", "v1alpha1", "machineupdate_types.go"))
	waiting := regexp.MustCompile(`(?m)^\tReason\w+ += "(\w+)"$`).FindAllStringSubmatch(types, -1)
	require.NotEmpty(t, waiting)
	for _, m := range waiting {
		require.True(t, strings.Contains(page, "\n### "+m[1]+"\n"), "updates wait with the reason %s, which has no heading", m[1])
	}
	sources, err := filepath.Glob(filepath.Join("..", "..", "internal", "machineupdate", "*.go"))
	require.NoError(t, err)
	failed := 0
	for _, source := range sources {
		for _, m := range regexp.MustCompile(`\bfails: +"(\w+)"`).FindAllStringSubmatch(readPage(t, source), -1) {
			failed++
			require.True(t, strings.Contains(page, "\n| "+m[1]+" |"), "updates fail with the reason %s, which is not in the table", m[1])
		}
	}
	require.Positive(t, failed)
}

// passes says of each reason to wait whether it passes by itself within half an hour, or is somebody's wish: nobody is told of those.
var passes = map[string]bool{
	refitv1.ReasonNodeAccess: false, refitv1.ReasonUnreachable: false, refitv1.ReasonHostKey: false, refitv1.ReasonSpecs: false,
	refitv1.ReasonBlocked: false, refitv1.ReasonAgent: false, refitv1.ReasonWorkload: false, refitv1.ReasonAudit: false, refitv1.ReasonNode: false,
	refitv1.ReasonBusy:    false, // a run that does not end
	refitv1.ReasonUpdater: false, // an extension that does not go on, or a selector to correct
	refitv1.ReasonLease:   false, // clocks that are apart, or a holder who is gone
	refitv1.ReasonPaused:  true, refitv1.ReasonDeleting: true, refitv1.ReasonTaken: true, refitv1.ReasonHold: true,
	refitv1.ReasonHealth: true, // it has an alert of its own, which names the gate
	refitv1.ReasonWindow: true, refitv1.ReasonBudget: true, refitv1.ReasonSlot: true, refitv1.ReasonSkew: true, refitv1.ReasonWithdrawn: true,
	refitv1.ReasonStaging: true, // a fleet may fetch for hours
}

// TestAlertOfWhatDoesNotPass: each reason is either in the alert's expression or passes by itself.
func TestAlertOfWhatDoesNotPass(t *testing.T) {
	types := readPage(t, filepath.Join("..", "..", "api", "v1alpha1", "machineupdate_types.go"))
	var stuck []string
	for _, m := range regexp.MustCompile(`(?m)^\tReason\w+ += "(\w+)"$`).FindAllStringSubmatch(types, -1) {
		itPasses, known := passes[m[1]]
		require.True(t, known, "whether the reason %s passes by itself", m[1])
		if !itPasses {
			stuck = append(stuck, m[1])
		}
	}
	slices.Sort(stuck)
	rules := readPage(t, filepath.Join("..", "..", "config", "prometheus", "rules.yaml"))
	require.Contains(t, rules, `phase="Waiting", reason=~"`+strings.Join(stuck, "|")+`"`)
}

// TestWhatOperatorsMayWriteIsDocumented reads the annotations in the policy that holds operators to them.
func TestWhatOperatorsMayWriteIsDocumented(t *testing.T) {
	policy := readPage(t, filepath.Join("..", "..", "config", "rbac", "operator_policy.yaml"))
	_, allowed, _ := strings.Cut(policy, "\n    - name: allowed\n")
	allowed, _, _ = strings.Cut(allowed, "\n    - name: ")
	_, page, _ := strings.Cut(readPage(t, filepath.Join(docsDir, "install.md")), "\n## The command\n")
	page, _, _ = strings.Cut(page, "\n## ")
	annotations := regexp.MustCompile(`'capi-refit\.dev/([a-z-]+)'`).FindAllStringSubmatch(allowed, -1)
	require.NotEmpty(t, annotations)
	for _, m := range annotations {
		if m[1] != "added-by-hold" { // is a part of what keeps Cluster API off
			require.Contains(t, page, "`"+m[1]+"`")
		}
	}
	for _, cmd := range newRootCommand().Commands() {
		if cmd.Name() != "serve" {
			require.Contains(t, page, "`"+cmd.Name()+"`")
		}
	}
}

func TestLinksOfPages(t *testing.T) {
	reference, err := filepath.Glob(filepath.Join(docsDir, "reference", "*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, reference)
	code := regexp.MustCompile("`[^`\n]*`")
	for _, name := range append(pages(t), reference...) {
		page := code.ReplaceAllString(readPage(t, name), "") // a pattern may look like a link
		for _, m := range regexp.MustCompile(`\]\(([^)#:]*)#?([^):]*)\)`).FindAllStringSubmatch(page, -1) {
			target := name
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(name), m[1])
				_, err := os.Stat(target)
				require.NoError(t, err, "%s: %s", name, m[0])
			}
			if m[2] != "" {
				require.Contains(t, anchors(readPage(t, target)), m[2], "%s: %s", name, m[0])
			}
		}
	}
}

// TestDocumentedCommandsForPeople: a command or flag that a page names is there.
func TestDocumentedCommandsForPeople(t *testing.T) {
	root := newRootCommand()
	root.InitDefaultCompletionCmd()
	commands := map[string]*cobra.Command{}
	for _, cmd := range root.Commands() {
		commands[cmd.Name()] = cmd
	}
	commands["serve"] = nil // its flags are looked at by themselves
	for _, name := range pages(t) {
		page := readPage(t, name)
		for _, m := range regexp.MustCompile("(?:`|\\$ |(?m:^))refit ([a-z-]+)([^`\\n#…]*)").FindAllStringSubmatch(page, -1) {
			cmd, ok := commands[m[1]]
			if !ok && !strings.HasPrefix(m[0], "refit") {
				require.Fail(t, "no such command", "%s: %s", name, m[0])
			}
			if cmd == nil {
				continue
			}
			cmd, rest, err := cmd.Find(strings.Fields(m[2]))
			require.NoError(t, err)
			for _, word := range rest {
				if flag, ok := strings.CutPrefix(word, "--"); ok {
					flag, _, _ = strings.Cut(flag, "=")
					require.NotNil(t, cmd.Flags().Lookup(flag), "%s: %s", name, m[0])
				}
			}
		}
	}
}

func TestFlagsOfTheServerAreDocumented(t *testing.T) {
	page := readPage(t, filepath.Join(docsDir, "install.md"))
	server.NewCommand(version).Flags().VisitAll(func(f *pflag.Flag) {
		require.True(t, strings.Contains(page, "`--"+f.Name+"`") || strings.Contains(page, "`-"+f.Name+"`"), "install.md does not name --%s", f.Name)
	})
}
