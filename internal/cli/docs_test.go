package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/schedule"
)

var (
	docsDir      = filepath.Join("..", "..", "docs")
	examplesDir  = filepath.Join(docsDir, "examples")
	policiesPage = filepath.Join(docsDir, "policies.md")
)

// codeBlock is a fenced block of a page, with the lines behind it.
type codeBlock struct {
	line     int
	language string
	text     string
	behind   []string
}

func readPage(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(data)
}

func codeBlocks(t *testing.T, page string) []codeBlock {
	t.Helper()
	var all []codeBlock
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		language, ok := strings.CutPrefix(lines[i], "```")
		if !ok {
			continue
		}
		length := slices.Index(lines[i+1:], "```")
		require.GreaterOrEqual(t, length, 0, "line %d: the block does not end", i+1)
		end := i + 1 + length
		all = append(all, codeBlock{
			line: i + 1, language: language, text: strings.Join(lines[i+1:end], "\n") + "\n", behind: lines[end+1:],
		})
		i = end
	}
	return all
}

// answer is a row of the table behind an example: what some of its policies, or all, say at an instant.
type answer struct {
	instant  time.Time
	says     string
	policies []string
	// change is what they are asked about; nothing is known of it without the column.
	change schedule.Class
}

// answers reads the table that follows a block.
func (b *codeBlock) answers() ([]answer, error) {
	rows := b.behind
	for len(rows) > 0 && strings.TrimSpace(rows[0]) == "" {
		rows = rows[1:]
	}
	var table [][]string
	for _, row := range rows {
		inner, ok := strings.CutPrefix(strings.TrimSpace(row), "|")
		if !ok {
			break
		}
		cells := strings.Split(strings.TrimSuffix(inner, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		table = append(table, cells)
	}
	if len(table) < 3 {
		return nil, fmt.Errorf("no table of instants and answers follows the example")
	}
	var all []answer
	for _, cells := range table[2:] {
		if len(cells) != len(table[0]) {
			return nil, fmt.Errorf("the row %q has %d cells and the header has %d", cells, len(cells), len(table[0]))
		}
		var a answer
		for i, name := range table[0] {
			if err := a.read(name, cells[i]); err != nil {
				return nil, err
			}
		}
		if a.instant.IsZero() || a.says == "" {
			return nil, fmt.Errorf("the row %q has no instant or no answer", cells)
		}
		all = append(all, a)
	}
	return all, nil
}

// readChange reads kinds and a disruption, separated by commas.
func (a *answer) readChange(cell string) {
	for _, word := range strings.Split(cell, ", ") {
		if kind := schedule.Kind(word); slices.Contains(schedule.Kinds(), kind) {
			a.change.Kinds = append(a.change.Kinds, kind)
		} else {
			a.change.Disruption = schedule.Disruption(word)
		}
	}
}

func (a *answer) read(column, cell string) (err error) {
	switch column {
	case "instant":
		a.instant, err = time.Parse(time.RFC3339, cell)
	case "answer":
		a.says = cell
	case "policy":
		a.policies = strings.Split(cell, " + ")
	case "change":
		a.readChange(cell)
	case "why":
	default:
		err = fmt.Errorf("the column %q is not known", column)
	}
	return err
}

// example are the objects of a block.
type example struct {
	policies []refitv1.ChangeManagementPolicy
	platform []refitv1.ClusterChangeManagementPolicy
	maps     map[string]corev1.ConfigMap
}

// readExample reads objects, and refuses fields that their types have not.
func readExample(text string) (*example, error) {
	e := &example{maps: map[string]corev1.ConfigMap{}}
	for doc := range strings.SplitSeq(text, "\n---\n") {
		var policy refitv1.ChangeManagementPolicy
		if err := yaml.Unmarshal([]byte(doc), &policy.TypeMeta); err != nil {
			return nil, err
		}
		switch kind := policy.APIVersion + " " + policy.Kind; kind {
		case refitv1.GroupVersion.String() + " ChangeManagementPolicy":
			if err := decodeStrictly(doc, &policy); err != nil {
				return nil, err
			}
			e.policies = append(e.policies, policy)
		case refitv1.GroupVersion.String() + " ClusterChangeManagementPolicy":
			var policy refitv1.ClusterChangeManagementPolicy
			if err := decodeStrictly(doc, &policy); err != nil {
				return nil, err
			}
			e.platform = append(e.platform, policy)
		case "v1 ConfigMap":
			var cm corev1.ConfigMap
			if err := decodeStrictly(doc, &cm); err != nil {
				return nil, err
			}
			e.maps[cm.Namespace+"/"+cm.Name] = cm
		default:
			return nil, fmt.Errorf("%s is neither a ChangeManagementPolicy nor a ConfigMap", kind)
		}
	}
	return e, nil
}

// decodeStrictly decodes as API servers do: a field that is written timezone is not timeZone.
func decodeStrictly(doc string, into any) error {
	data, err := yaml.YAMLToJSONStrict([]byte(doc))
	if err != nil {
		return err
	}
	strict, err := json.UnmarshalStrict(data, into)
	return errors.Join(append(strict, err)...)
}

// compile reads the policies as the server does, with the calendars of the example.
func (e *example) compile() (map[string]*schedule.Schedule, error) {
	all := map[string]*schedule.Schedule{}
	for i := range e.policies {
		p := &e.policies[i]
		if p.Name == "" || p.Namespace == "" || all[p.Name] != nil {
			return nil, fmt.Errorf("policy %q has no name, no namespace, or the name of another one", p.Name)
		}
		read, err := changemanagement.Compile(p, schedule.CalendarsFunc(func(ref schedule.ConfigMapKey) (schedule.Calendar, error) {
			cm, ok := e.maps[p.Namespace+"/"+ref.Name]
			data, found := cm.Data[ref.Key]
			if !ok || !found {
				return schedule.NoCalendars.Calendar(ref)
			}
			updated, err := time.Parse(time.RFC3339, cm.Annotations[refitv1.CalendarUpdatedAnnotation])
			return schedule.Calendar{Data: []byte(data), Modified: updated}, err
		}))
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", p.Name, err)
		}
		all[p.Name] = read.Schedule
	}
	for i := range e.platform {
		p := &e.platform[i]
		if p.Name == "" || p.Namespace != "" || all[p.Name] != nil {
			return nil, fmt.Errorf("policy %q of the platform has no name, a namespace, or the name of another one", p.Name)
		}
		read, err := changemanagement.CompileCluster(p, schedule.NoCalendars)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", p.Name, err)
		}
		all[p.Name] = read.Schedule
	}
	return all, nil
}

// decide returns what policies answer, as the tables have it. Without names all of them are asked.
func decide(schedules map[string]*schedule.Schedule, a answer) (string, error) {
	var some []*schedule.Schedule
	for name, s := range schedules {
		if a.policies == nil || slices.Contains(a.policies, name) {
			some = append(some, s.For(a.change))
		}
	}
	if a.policies != nil && len(some) != len(a.policies) {
		return "", fmt.Errorf("not all of the policies %v are in the example", a.policies)
	}
	d := schedule.Decide(schedule.Query{Now: a.instant}, some...)
	switch {
	case d.Open && (d.Window == nil || d.Window.End.IsZero()):
		return "open", nil
	case d.Open:
		return "open until " + d.Window.End.Format(time.RFC3339), nil
	case d.NextChangeETASeconds < 0:
		return fmt.Sprintf("closed (%s)", d.Reason), nil
	default:
		return fmt.Sprintf("closed (%s), opens %s", d.Reason, d.Window.Start.Format(time.RFC3339)), nil
	}
}

// checkExample says how an example differs from what stands behind it.
func checkExample(b codeBlock) error {
	e, err := readExample(b.text)
	if err != nil {
		return err
	}
	schedules, err := e.compile()
	if err != nil {
		return err
	}
	answers, err := b.answers()
	if err != nil {
		return err
	}
	for _, a := range answers {
		got, err := decide(schedules, a)
		if err != nil {
			return err
		}
		if got != a.says {
			return fmt.Errorf("%s: the page says %q, and it is %q", a.instant.Format(time.RFC3339), a.says, got)
		}
	}
	return nil
}

// policyKinds matches both kinds of policies.
var policyKinds = regexp.MustCompile(`kind: (Cluster)?ChangeManagementPolicy`)

func (b *codeBlock) isExample() bool {
	return b.language == "yaml" && policyKinds.MatchString(b.text)
}

func TestDocumentedPolicies(t *testing.T) {
	files, err := os.ReadDir(examplesDir)
	require.NoError(t, err)
	var unused []string
	for _, f := range files {
		if !f.IsDir() && policyKinds.MatchString(readPage(t, filepath.Join(examplesDir, f.Name()))) { // others are on other pages
			unused = append(unused, f.Name())
		}
	}
	page := readPage(t, policiesPage)
	count := func(text string) int { return len(policyKinds.FindAllString(text, -1)) }
	left := count(page)
	for _, b := range codeBlocks(t, page) {
		if !b.isExample() {
			continue
		}
		left -= count(b.text)
		name := strings.TrimPrefix(strings.SplitN(b.text, "\n", 2)[0], "# docs/examples/")
		t.Run(name, func(t *testing.T) {
			require.NoError(t, checkExample(b), "%s:%d", policiesPage, b.line)
			require.Equal(t, readPage(t, filepath.Join(examplesDir, name)), b.text, "%s:%d and its file differ", policiesPage, b.line)
		})
		unused = slices.DeleteFunc(unused, func(f string) bool { return f == name })
	}
	require.Empty(t, unused, "files that no example of the page has")
	require.Zero(t, left, "policies outside of yaml blocks")
}

// TestDocumentedPoliciesAreChecked has examples that are wrong.
func TestDocumentedPoliciesAreChecked(t *testing.T) {
	const head = "apiVersion: capi-refit.dev/v1alpha1\nkind: ChangeManagementPolicy\nmetadata: {name: a, namespace: fleet}\nspec:\n"
	const table = "\n| instant | answer |\n|---|---|\n| 2026-10-03T18:00:00Z | open |\n"
	for name, c := range map[string]struct{ spec, behind, says string }{
		"right":                    {"  strategy: Permissive\n", table, ""},
		"a field that is unknown":  {"  strategy: Permissive\n  budgets: {}\n", table, `unknown field "spec.budgets"`},
		"a field in other letters": {"  strategy: MaintenanceSchedule\n  maintenanceSchedule: {timezone: UTC}\n", table, `unknown field "spec.maintenanceSchedule.timezone"`},
		"a zone that is unknown":   {"  strategy: MaintenanceSchedule\n  maintenanceSchedule: {timeZone: Mars}\n", table, "policy a: maintenanceSchedule.timeZone"},
		"fit without quotes":       {"  strategy: Permissive\n  fit: Off\n", table, "cannot unmarshal bool"},
		"no strategy":              {"  fit: Warn\n", table, "policy a: strategy"},
		"no calendar":              {"  strategy: MaintenanceSchedule\n  maintenanceSchedule: {exclude: [{calendar: {configMap: {name: a, key: b}}}]}\n", table, "there is no calendar"},
		"no table":                 {"  strategy: Permissive\n", "\nNext.\n", "no table"},
		"a table without rows":     {"  strategy: Permissive\n", "\n| instant | answer |\n|---|---|\n", "no table"},
		"another answer":           {"  strategy: Restrictive\n", table, `the page says "open", and it is "closed (Paused)"`},
		"another policy":           {"  strategy: Permissive\n", "\n| instant | answer | policy |\n|---|---|---|\n| 2026-10-03T18:00:00Z | open | b |\n", "are in the example"},
		"another column":           {"  strategy: Permissive\n", "\n| instant | answers |\n|---|---|\n| 2026-10-03T18:00:00Z | open |\n", `the column "answers" is not known`},
		"an instant that is none":  {"  strategy: Permissive\n", "\n| instant | answer |\n|---|---|\n| tomorrow | open |\n", `"tomorrow"`},
	} {
		t.Run(name, func(t *testing.T) {
			blocks := codeBlocks(t, "```yaml\n"+head+c.spec+"```\n"+c.behind)
			require.Len(t, blocks, 1)
			require.True(t, blocks[0].isExample())
			err := checkExample(blocks[0])
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
		})
	}
}

var documentedCommand = regexp.MustCompile(`(?m)^\$ (?:bin/)?refit schedule (.*docs/examples/.*)$`)

// TestDocumentedCommands runs the commands that name an example, and compares what they say with what the page says they do.
func TestDocumentedCommands(t *testing.T) {
	page := readPage(t, policiesPage)
	dir := t.TempDir() // for commands that write files
	require.NoError(t, os.CopyFS(filepath.Join(dir, "docs", "examples"), os.DirFS(examplesDir)))
	blocks := codeBlocks(t, page)
	t.Chdir(dir)
	run := 0
	for _, b := range blocks {
		if b.language != "console" {
			continue
		}
		for part := range strings.SplitSeq("\n"+b.text, "\n$ ") {
			line, output, _ := strings.Cut(part, "\n")
			args := documentedCommand.FindStringSubmatch("$ " + line)
			if args == nil {
				continue
			}
			run++
			t.Run(line, func(t *testing.T) {
				require.NotContains(t, args[1], `"`, "words are split at spaces")
				got, err := runSchedule(t, "", strings.Fields(args[1])...)
				require.NoError(t, err)
				require.Equal(t, strings.TrimSuffix(got, "\n"), strings.TrimSuffix(output, "\n"))
			})
		}
	}
	require.Len(t, regexp.MustCompile(`refit schedule [^\n]*docs/examples/`).FindAllString(page, -1), run,
		"a command that names an example is written behind a $ in a console block")
	for _, subcommand := range newScheduleCommand().Commands() {
		require.True(t, strings.Contains(page, "$ refit schedule "+subcommand.Name()+" "), "no example of %s", subcommand.Name())
	}
}

var notInAnchors = regexp.MustCompile(`[^a-z0-9 _-]`)

// anchors returns the headings of a page as links name them.
func anchors(page string) []string {
	var all []string
	page = regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(page, "")
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		all = append(all, strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}
