package conformance_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/conformance"
)

func run(t *testing.T, e *extension) *conformance.Report {
	t.Helper()
	s := suite(t, e)
	s.Huge(maxRequest + 1)
	s.UpdateMachine = true
	report, err := s.Run(t.Context())
	require.NoError(t, err)
	return report
}

// TestARightExtension: it keeps all laws, and there is something to look at for each.
func TestARightExtension(t *testing.T) {
	allKept(t, &extension{})
}

// TestTheOrderOfOperationsIsFree: Cluster API's reference extension has another one each time.
func TestTheOrderOfOperationsIsFree(t *testing.T) {
	e := &extension{}
	e.answer = func(_ string, request, response object) {
		for _, name := range []string{"bootstrapConfig", "bootstrapConfigTemplate"} {
			patch, ok := response[name+"Patch"].(object)
			if !ok {
				continue
			}
			own, _ := patch["patch"].([]byte)
			operations := []string{string(own[1 : len(own)-1]), `{"op": "test", "path": "/kind", "value": ` + text(child(child(request, "current"), name)["kind"]) + `}`}
			if e.count.Add(1)%2 == 0 {
				slices.Reverse(operations)
			}
			patch["patch"] = []byte("[" + strings.Join(operations, ", ") + "]")
		}
	}
	allKept(t, e)
}

func allKept(t *testing.T, e *extension) {
	t.Helper()
	for _, f := range run(t, e).Findings {
		if f.Name == "failure-message" || f.Result == conformance.Pass {
			continue
		}
		require.Fail(t, f.Name, "%v", append(f.Evidence, f.Reason))
	}
}

// TestWrongExtensions has for each law extensions that break it and no other.
func TestWrongExtensions(t *testing.T) {
	all := breaks()
	for _, l := range conformance.Laws() {
		require.NotEmpty(t, all[l.Name], "no extension breaks %s", l.Name)
		for i, e := range all[l.Name] {
			t.Run(fmt.Sprintf("%s %d", l.Name, i+1), func(t *testing.T) {
				report := run(t, e)
				require.Equal(t, []string{l.Name}, report.Broken(), "%+v", report.Findings)
				for _, f := range report.Findings {
					require.NotEmpty(t, f.Reason)
					require.Equal(t, f.Result == conformance.Fail, len(f.Evidence) > 0)
				}
			})
		}
	}
	require.Len(t, all, len(conformance.Laws()))
}

// TestRecorded: they are those that the hooks are tested with.
func TestRecorded(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("requests", "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		ours, err := os.ReadFile(f)
		require.NoError(t, err)
		theirs, err := os.ReadFile(filepath.Join("..", "..", "handlers", "testdata", filepath.Base(f)))
		require.NoError(t, err)
		require.Equal(t, string(theirs), string(ours), f)
	}
}

// TestUpdateMachineIsNotCalled unless somebody asks for it.
func TestUpdateMachineIsNotCalled(t *testing.T) {
	e := &extension{}
	e.answer = update(func(object) { e.count.Add(1) })
	s := suite(t, e)
	s.Huge(maxRequest + 1)
	report, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Zero(t, e.count.Load())
	require.Empty(t, report.Broken())
	for _, f := range report.Findings {
		if f.Name == "update-repeats" {
			require.Equal(t, conformance.Skip, f.Result)
			require.Contains(t, f.Reason, "--update-machine")
		}
	}
}

// TestUpdateMachineOfOnesOwn: of the recorded requests none is sent then.
func TestUpdateMachineOfOnesOwn(t *testing.T) {
	own, err := conformance.ReadRequest("own.yaml", []byte(`
apiVersion: hooks.runtime.cluster.x-k8s.io/v1alpha1
kind: UpdateMachineRequest
desired:
  machine: {apiVersion: cluster.x-k8s.io/v1beta2, kind: Machine, metadata: {name: own}}
`))
	require.NoError(t, err)
	require.True(t, own.ForUpdateMachine())
	e := &extension{}
	var asked []string
	e.answer = func(hook string, request, _ object) {
		if hook == "updatemachine" {
			asked = append(asked, fmt.Sprint(child(request, "desired", "machine", "metadata")["name"]))
		}
	}
	s := suite(t, e)
	s.UpdateMachine, s.Requests = true, []conformance.Request{own}
	_, err = s.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"own", "own"}, asked)
}

// TestHandlers: only those that are named are looked at.
func TestHandlers(t *testing.T) {
	s := suite(t, &extension{})
	s.Handlers = []string{"can-set"}
	report, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"can-set"}, report.Handlers)
	require.Empty(t, report.Broken())

	s = suite(t, &extension{})
	s.Handlers = []string{"can-everything"}
	_, err = s.Run(t.Context())
	require.ErrorContains(t, err, `no handler "can-everything"`)
}

// TestNobodyAnswers: an extension that can't be reached breaks no law.
func TestNobodyAnswers(t *testing.T) {
	e := &extension{}
	e.dead.Store(true)
	_, err := suite(t, e).Run(t.Context())
	require.ErrorContains(t, err, "ask for the extension's handlers")

	_, err = conformance.NewClient([]byte("no certificate"), nil, "")
	require.ErrorContains(t, err, "no certificate")
}

func TestReadRequest(t *testing.T) {
	const head = "apiVersion: hooks.runtime.cluster.x-k8s.io/v1alpha1\n"
	for name, tc := range map[string]struct{ text, want string }{
		"no YAML":         {"{", "own"},
		"a list":          {"[]", "is not a request"},
		"nothing":         {"", `is a "" of ""`},
		"another kind":    {head + "kind: Pod", `is a "Pod"`},
		"another hook":    {head + "kind: BeforeClusterUpgradeRequest", `is a "BeforeClusterUpgradeRequest"`},
		"another version": {"apiVersion: v9\nkind: CanUpdateMachineRequest", `of "v9"`},
		"no objects":      {head + "kind: CanUpdateMachineRequest\ndesired: {machine: {}}", "lacks the objects"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := conformance.ReadRequest("own", []byte(tc.text))
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// TestThePageHasAllLaws compares the table of the page with the laws.
func TestThePageHasAllLaws(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "conformance.md"))
	require.NoError(t, err)
	for _, l := range conformance.Laws() {
		require.Contains(t, string(data), fmt.Sprintf("| `%s` | %s | %s |\n", l.Name, l.Demands, l.Source))
	}
	require.Equal(t, len(conformance.Laws()), strings.Count(string(data), "\n| `"), "rows of no law")
}
