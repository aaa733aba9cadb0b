package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/plain"
	"github.com/capi-refit/refit/internal/registered"
	"github.com/capi-refit/refit/internal/registered/registeredtest"
)

// canUpdateUsers is a request of a Machine whose users change, of which the engine of these tests knows nothing.
const canUpdateUsers = "canupdatemachine-users"

// says is an answer to CanUpdateMachine with a patch of the bootstrap config.
func says(patchType, patch string) any {
	return map[string]any{"status": "Success", "bootstrapConfigPatch": map[string]any{"patchType": patchType, "patch": []byte(patch)}}
}

// claims is the answer of who claims the users.
func claims(request []byte) any {
	users := gjson.GetBytes(request, "desired.bootstrapConfig.spec.users").Raw
	return says("JSONMergePatch", fmt.Sprintf(`{"spec": {"users": %s}}`, users))
}

func asking(t *testing.T, registrations ...*refitv1.UpdaterRegistration) *Engine {
	var objects []client.Object
	for _, r := range registrations {
		objects = append(objects, r)
	}
	c := managementtest.New(objects...)
	e := engine(t).With(&registered.Registry{Client: c, Live: c, Namespace: "refit"})
	e.patience = 10 * time.Minute // a machine that runs tests may be busy for long
	return e
}

func TestRegisteredUpdaterIsAskedAboutWhatIsLeft(t *testing.T) {
	body := recorded(t, canUpdateUsers)
	x, err := asking(t, registeredtest.Extension(t, "users", func(_ string, request []byte) any { return claims(request) })).Explain(t.Context(), body)
	require.NoError(t, err)
	require.Equal(t, VerdictInPlace, x.Verdict)
	require.Equal(t, "registered/users", x.Fields[0].Updater)
	require.Equal(t, disruption.None, x.Disruption)
	response, err := json.Marshal(x.Response)
	require.NoError(t, err)
	require.True(t, clusterAPIAgrees(t, body, response))
}

// TestWhatIsLeft is what a rollback asks.
func TestWhatIsLeft(t *testing.T) {
	body := recorded(t, canUpdateUsers)
	left, err := asking(t).Left(t.Context(), body)
	require.NoError(t, err)
	require.Contains(t, left, "spec.users")
	left, err = asking(t, registeredtest.Extension(t, "users", func(_ string, request []byte) any { return claims(request) })).Left(t.Context(), body)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestRegisteredUpdaterThatDrains(t *testing.T) {
	r := registeredtest.Extension(t, "users", func(_ string, request []byte) any { return claims(request) })
	r.Spec.Disturbs = refitv1.UpdaterDisturbsDrain
	x, err := asking(t, r).Explain(t.Context(), recorded(t, canUpdateUsers))
	require.NoError(t, err)
	require.Equal(t, []string{"Drain"}, x.Actions)
}

func TestRegisteredUpdaterThatClaimsNothing(t *testing.T) {
	x, err := asking(t, registeredtest.Extension(t, "none", func(string, []byte) any { return map[string]any{"status": "Success"} })).
		Explain(t.Context(), recorded(t, canUpdateUsers))
	require.NoError(t, err)
	require.Equal(t, VerdictReplace, x.Verdict)
}

// TestOrderOfRegisteredUpdaters: by priority, then by name; who comes first gets what both claim, and nobody is asked once all is covered.
func TestOrderOfRegisteredUpdaters(t *testing.T) {
	unasked := func(string, []byte) any { t.Error("all is covered"); return nil }
	claimer := func(_ string, request []byte) any { return claims(request) }
	a, b, c := registeredtest.Extension(t, "a", unasked), registeredtest.Extension(t, "b", claimer), registeredtest.Extension(t, "c", unasked)
	a.Spec.Priority, b.Spec.Priority, c.Spec.Priority = -1, 5, 5
	x, err := asking(t, a, c, b).Explain(t.Context(), recorded(t, canUpdateUsers))
	require.NoError(t, err)
	require.Equal(t, "registered/b", x.Fields[0].Updater)
}

// TestOverlapsAreTold: who else would claim a field, be that another extension's or refit's own. It is asked about all of the change for that.
func TestOverlapsAreTold(t *testing.T) {
	claimer := func(_ string, request []byte) any { return claims(request) }
	body := recorded(t, canUpdateUsers)
	c, err := asking(t, registeredtest.Extension(t, "a", claimer), registeredtest.Extension(t, "b", claimer), registeredtest.Extension(t, "c", claimer)).Claims(t.Context(), body)
	require.NoError(t, err)
	require.True(t, c.Decision.InPlace())
	for i := range c.Decision {
		require.Equal(t, "registered/a", c.Decision[i].Updater)
		require.Equal(t, []string{"b", "c"}, c.Also[i])
	}

	var asked atomic.Int64 // one that comes to lie when it is asked about all of it
	c, err = asking(t, registeredtest.Extension(t, "a", claimer), registeredtest.Extension(t, "liar", func(string, []byte) any { asked.Add(1); return nil })).Claims(t.Context(), body)
	require.NoError(t, err)
	require.True(t, c.Decision.InPlace())
	require.EqualValues(t, 1, asked.Load())
	require.Len(t, c.Unsaid, 1)
	require.ErrorContains(t, c.Unsaid[0], "UpdaterRegistration liar: ")

	_, err = asking(t, registeredtest.Extension(t, "liar", func(string, []byte) any { return nil })).Claims(t.Context(), body)
	require.ErrorAs(t, err, new(*registered.Fault))

	// A file is refit's own, and another one would claim it.
	file := recorded(t, "canupdatemachine-file-content")
	e := engine(t, "/etc/demo.conf").With(asking(t, registeredtest.Extension(t, "files", func(_ string, request []byte) any {
		return says("JSONMergePatch", fmt.Sprintf(`{"spec": {"files": %s}}`, gjson.GetBytes(request, "desired.bootstrapConfig.spec.files").Raw))
	})).registered)
	e.patience = 10 * time.Minute
	c, err = e.Claims(t.Context(), file)
	require.NoError(t, err)
	require.Equal(t, "files", c.Decision[0].Updater)
	require.Equal(t, []string{"files"}, c.Also[0])
}

func TestRegisteredUpdaterIsForSomeMachinesOnly(t *testing.T) {
	r := registeredtest.Extension(t, "other", func(string, []byte) any { t.Error("it is not for the machine"); return nil })
	r.Spec.BootstrapKinds = []string{"RKE2Config"}
	x, err := asking(t, r).Explain(t.Context(), recorded(t, canUpdateUsers))
	require.NoError(t, err)
	require.Equal(t, VerdictReplace, x.Verdict)
}

// TestRegisteredUpdaterClaimsWhereItIsCalled: the update goes by the labels that the Machine has then. Who is not selected by those that it has and by
// those that it is to have claims nothing.
func TestRegisteredUpdaterClaimsWhereItIsCalled(t *testing.T) {
	body := recorded(t, canUpdateUsers)
	for name, tc := range map[string]struct {
		current, desired string
		want             string
	}{
		"both":        {"a", "a", VerdictInPlace},
		"it leaves":   {"a", "b", VerdictReplace},
		"it comes":    {"b", "a", VerdictReplace},
		"it is not":   {"b", "b", VerdictReplace},
		"it loses it": {"a", "", VerdictReplace},
	} {
		t.Run(name, func(t *testing.T) {
			r := registeredtest.Extension(t, "users", func(_ string, request []byte) any { return claims(request) })
			r.Spec.MachineSelector.MatchLabels = map[string]string{"pool": "a"}
			var request map[string]any
			require.NoError(t, json.Unmarshal(body, &request))
			for side, pool := range map[string]string{"current": tc.current, "desired": tc.desired} {
				metadata := request[side].(map[string]any)["machine"].(map[string]any)["metadata"].(map[string]any)
				if delete(metadata, "labels"); pool != "" {
					metadata["labels"] = map[string]any{"pool": pool}
				}
			}
			labelled, err := json.Marshal(request)
			require.NoError(t, err)
			x, err := asking(t, r).Explain(t.Context(), labelled)
			require.NoError(t, err)
			require.Equal(t, tc.want, x.Verdict)
		})
	}
}

// TestPatchesOfWhatDoesNotChange: Cluster API's reference extension sends an empty patch of each object, and one of the infrastructure machine's status.
func TestPatchesOfWhatDoesNotChange(t *testing.T) {
	patch := func(p string) any { return map[string]any{"patchType": "JSONPatch", "patch": []byte(p)} }
	answer := func(infrastructure string) registeredtest.Answer {
		return func(_ string, request []byte) any {
			a := claims(request).(map[string]any)
			a["machinePatch"], a["infrastructureMachinePatch"] = patch("[]"), patch(infrastructure)
			return a
		}
	}
	body := recorded(t, canUpdateUsers)
	x, err := asking(t, registeredtest.Extension(t, "users", answer(`[{"op": "add", "path": "/status", "value": {}}]`))).Explain(t.Context(), body)
	require.NoError(t, err)
	require.Equal(t, VerdictInPlace, x.Verdict)

	_, err = asking(t, registeredtest.Extension(t, "users", answer(`[{"op": "add", "path": "/spec/more", "value": 1}]`))).Explain(t.Context(), body)
	require.ErrorContains(t, err, "its patch of infrastructureMachine changes an object that does not change")
}

// TestLiesOfRegisteredUpdaters: whatever one does, nothing is decided, so that nothing is replaced; and the message names whose fault it is. Another one that
// covers what is left is not kept from it.
func TestLiesOfRegisteredUpdaters(t *testing.T) {
	var asked atomic.Int64
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	for name, tc := range map[string]struct {
		answer registeredtest.Answer
		says   string
	}{
		"it fails":          {func(string, []byte) any { return map[string]any{"status": "Failure", "message": "no\nway"} }, "answers CanUpdateMachine with Failure: no way"},
		"it has no status":  {func(string, []byte) any { return map[string]any{} }, `with the status ""`},
		"it is broken":      {func(string, []byte) any { return nil }, "with HTTP status 500"},
		"it does not speak": {func(string, []byte) any { return "hello" }, "can't be read"},
		"it answers other":  {func(string, []byte) any { return map[string]any{"kind": "UpdateMachineResponse", "status": "Success"} }, `with "UpdateMachineResponse"`},
		"it answers for a set": {func(string, []byte) any {
			return map[string]any{"status": "Success", "machineSetPatch": map[string]any{"patchType": "JSONPatch", "patch": []byte("[]")}}
		}, "another kind of object"},
		"a type without patch": {func(string, []byte) any { return says("JSONPatch", "") }, "a patch type without a patch"},
		"a patch of no type":   {func(string, []byte) any { return says("", "[]") }, `is of the type ""`},
		"it floods":            {func(string, []byte) any { return strings.Repeat(" ", 3<<20) }, "longer than 2097152 bytes"},
		"it is deep":           {func(string, []byte) any { return deep }, "is not read"},
		"its patch is deep":    {func(string, []byte) any { return says("JSONMergePatch", deep) }, "is not read"},
		"it does not apply":    {func(string, []byte) any { return says("JSONPatch", `[{"op": "remove", "path": "/spec/nothing"}]`) }, "does not apply"},
		"it copies": {func(string, []byte) any {
			return says("JSONPatch", `[{"op": "copy", "from": "/spec", "path": "/spec/x"}]`)
		}, "an operation other than"},
		"it changes metadata": {func(string, []byte) any { return says("JSONMergePatch", `{"metadata": {"labels": {"a": "b"}}}`) }, "outside of spec"},
		"it changes other":    {func(string, []byte) any { return says("JSONMergePatch", `{"spec": {"format": "ignition"}}`) }, "changes spec.format, which does not differ"},
		"it takes the spec":   {func(string, []byte) any { return says("JSONMergePatch", `{"spec": null}`) }, "its patch of bootstrapConfig"},
		"it changes its mind": {func(_ string, request []byte) any {
			if asked.Add(1)%2 == 0 {
				return map[string]any{"status": "Success"}
			}
			return claims(request)
		}, "in two ways to the same question"},
	} {
		t.Run(name, func(t *testing.T) {
			asked.Store(0)
			body := recorded(t, canUpdateUsers)
			liar := registeredtest.Extension(t, "liar", tc.answer)
			liar.Spec.Priority = 1
			_, err := asking(t, liar).Explain(t.Context(), body)
			require.ErrorContains(t, err, "UpdaterRegistration liar: ")
			require.ErrorContains(t, err, tc.says)
			require.ErrorContains(t, err, "no machine is replaced")

			asked.Store(0)
			honest := registeredtest.Extension(t, "honest", func(_ string, request []byte) any { return claims(request) })
			x, err := asking(t, liar, honest).Explain(t.Context(), body)
			require.NoError(t, err)
			require.Equal(t, VerdictInPlace, x.Verdict)
		})
	}
}

// TestLogNamesWhoLiesAndTheMachine: whoever looks why nothing goes on finds there whose fault it is, and which Machine waits.
func TestLogNamesWhoLiesAndTheMachine(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	e := asking(t, registeredtest.Extension(t, "liar", func(string, []byte) any { return nil }))
	h := NewCanUpdate(e, NoPolicies{}, NewMetrics(prometheus.NewRegistry()), "")
	response := h.Machine(ctrl.LoggerInto(t.Context(), log), recorded(t, canUpdateUsers))
	require.Equal(t, runtimehooksv1.ResponseStatusFailure, response.GetStatus())
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "UpdaterRegistration liar: ")
	name := gjson.GetBytes(recorded(t, canUpdateUsers), "current.machine.metadata.name").Str
	require.NotEmpty(t, name)
	require.Contains(t, lines[0], "lab/"+name)
}

// TestFaultsAreToldWhereAChangeWaits: at the MachineDeployment, or at the Machine of a control plane.
func TestFaultsAreToldWhereAChangeWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		request string
		ask     func(*CanUpdate, context.Context, []byte) runtimehooksv1.ResponseObject
		waits   func(request []byte) client.Object
	}{
		"a MachineDeployment": {"canupdatemachineset-file-removed", (*CanUpdate).MachineSet, func(request []byte) client.Object {
			name := gjson.GetBytes(request, `current.machineSet.metadata.labels.cluster\.x-k8s\.io/deployment-name`).Str
			return &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name, UID: "uid-md"}}
		}},
		"a Machine": {canUpdateUsers, (*CanUpdate).Machine, func(request []byte) client.Object {
			return managementtest.Machine("lab", gjson.GetBytes(request, "current.machine.metadata.name").Str, "c1")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			body := recorded(t, tc.request)
			waits := tc.waits(body)
			recorder := &told{}
			h := NewCanUpdate(asking(t, registeredtest.Extension(t, "liar", func(string, []byte) any { return nil })), NoPolicies{}, NewMetrics(prometheus.NewRegistry()), "").
				Telling(&registered.Events{Client: managementtest.New(waits), Recorder: recorder})
			require.Equal(t, runtimehooksv1.ResponseStatusFailure, tc.ask(h, t.Context(), body).GetStatus())
			require.Equal(t, waits.GetName(), recorder.of)
			require.Contains(t, recorder.note, "no machine is replaced")
			require.Contains(t, recorder.note, "UpdaterRegistration liar: ")

			recorder.of = ""
			h = NewCanUpdate(asking(t), NoPolicies{}, NewMetrics(prometheus.NewRegistry()), "other").Telling(&registered.Events{Client: managementtest.New(waits), Recorder: recorder})
			require.Equal(t, runtimehooksv1.ResponseStatusFailure, tc.ask(h, t.Context(), body).GetStatus())
			require.Empty(t, recorder.of, "it is no fault of an updater")
		})
	}
}

// told keeps the last event.
type told struct{ of, note string }

func (r *told) Eventf(of, _ runtime.Object, _, _, _, note string, args ...any) {
	r.of, r.note = of.(client.Object).GetName(), fmt.Sprintf(note, args...)
}

func TestRegisteredUpdaterThatIsNotThere(t *testing.T) {
	r := registeredtest.Extension(t, "away", func(string, []byte) any { return nil })
	r.Status = refitv1.UpdaterRegistrationStatus{}
	_, err := asking(t, r).Explain(t.Context(), recorded(t, canUpdateUsers))
	require.ErrorContains(t, err, "UpdaterRegistration away: its handlers are not known")
	r.Status.ObservedGeneration, r.Status.Handlers = 1, refitv1.UpdaterHandlers{CanUpdateMachine: "can", UpdateMachine: "update"}
	r.Spec.ClientConfig.URL = "https://127.0.0.1:1"
	_, err = asking(t, r).Explain(t.Context(), recorded(t, canUpdateUsers))
	require.ErrorContains(t, err, "UpdaterRegistration away: it can't be asked CanUpdateMachine")
}

// TestASelectorThatCannotBeReadOfAnotherNamespace keeps nothing from being decided.
func TestASelectorThatCannotBeReadOfAnotherNamespace(t *testing.T) {
	r := registeredtest.Extension(t, "elsewhere", func(string, []byte) any { t.Error("it is asked"); return nil })
	r.Spec.NamespaceSelector.MatchLabels = map[string]string{"kubernetes.io/metadata.name": "elsewhere"}
	r.Spec.MachineSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "pool", Operator: "in", Values: []string{"gpu"}}}
	for ns, want := range map[string]runtimehooksv1.ResponseStatus{"elsewhere": runtimehooksv1.ResponseStatusFailure, "other": runtimehooksv1.ResponseStatusSuccess} {
		request := recorded(t, canUpdateUsers)
		name := gjson.GetBytes(request, "current.machine.metadata.namespace").String()
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/metadata.name": ns}}}
		c := managementtest.New(r.DeepCopy(), namespace)
		e := engine(t).With(&registered.Registry{Client: c, Live: c})
		a := NewCanUpdate(e, NoPolicies{}, NewMetrics(prometheus.NewRegistry()), "").Machine(t.Context(), request)
		require.Equal(t, want, a.GetStatus(), a.GetMessage())
	}
}

// TestFaultsAreOneLine that has nothing in it that a terminal or a reader could take for something else.
func TestFaultsAreOneLine(t *testing.T) {
	lies := func(string, []byte) any {
		return map[string]any{"status": "Failure", "message": "out\u202e of \u2028disk\u0085 \u009b31m"}
	}
	e := asking(t, registeredtest.Extension(t, "a", lies), registeredtest.Extension(t, "b", lies))
	_, err := e.Claims(t.Context(), recorded(t, canUpdateUsers))
	require.ErrorContains(t, err, "; UpdaterRegistration b: ")
	require.False(t, strings.ContainsFunc(err.Error(), plain.Unfit), "%q", err)
}
