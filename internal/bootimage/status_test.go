package bootimage

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
)

// booted is a Machine that has booted from an image, and an infrastructure machine that names one.
func booted(name, from, names string, edits ...func(*clusterv1.Machine)) []client.Object {
	return []client.Object{capiMachine(name, "Metal3Machine", append(edits, annotate(refitv1.BootedImageAnnotation, from))...), metal(name, names)}
}

func all(lists ...[]client.Object) []client.Object {
	var out []client.Object
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

func (w *world) condition(name string) *metav1.Condition {
	w.T.Helper()
	return apimeta.FindStatusCondition(w.Policy("a").Status.Conditions, name)
}

func TestCounts(t *testing.T) {
	fleet := all(
		booted("new", newName, newImage, label("pool", "gpu")),
		booted("kept", oldName, newImage),
		booted("old", oldName, oldImage, label("pool", "gpu")),
		booted("unknown", unknownImage, newImage),
		booted("unversioned", "image.url=x", "y"),
		[]client.Object{
			capiMachine("unnoted", "Metal3Machine"), metal("unnoted", newImage),
			capiMachine("alone", "Metal3Machine", annotate(refitv1.BootedImageAnnotation, newName)),
			capiMachine("foreign", "Metal3Machine"), controlledBy(metal("foreign", oldImage), "example.com/v1", "Fleet", "f"),
			capiMachine("elsewhere", "Metal3Machine", func(m *clusterv1.Machine) { m.Spec.ClusterName = "gone" }), metal("elsewhere", oldImage),
			metal("without-machine", oldImage),
		})
	for name, tc := range map[string]struct {
		edits []edit
		want  refitv1.BootImageMachines
	}{
		"with a minimum": {[]edit{minimum("1.36")}, refitv1.BootImageMachines{Total: 8, Selected: 7, AtSpecImage: 2, Skewed: 2, Unknown: 4, Foreign: 1}},
		"without":        {nil, refitv1.BootImageMachines{Total: 8, Selected: 7, AtSpecImage: 2, Skewed: 0, Unknown: 3, Foreign: 1}},
		"a part of them": {[]edit{partial("gpu")}, refitv1.BootImageMachines{Total: 8, Selected: 2, AtSpecImage: 2, Skewed: 0, Unknown: 3, Foreign: 1}},
		"none of them":   {[]edit{mode(refitv1.NoBootImages), minimum("1.0")}, refitv1.BootImageMachines{Total: 8, Selected: 0, AtSpecImage: 2, Skewed: 0, Unknown: 4, Foreign: 1}},
		"by a label": {
			[]edit{minimum("1.36"), func(s *spec) { s.Selector.Machines.MatchLabels = map[string]string{"pool": "gpu"} }},
			refitv1.BootImageMachines{Total: 2, Selected: 2, AtSpecImage: 2, Skewed: 1},
		},
		"other machines": {[]edit{roles(refitv1.ControlPlaneRole)}, refitv1.BootImageMachines{}},
		"by a pattern":   {[]edit{minimum("2"), func(s *spec) { s.VersionPattern = `k8s-v1\.(\d+)` }}, refitv1.BootImageMachines{Total: 8, Selected: 7, AtSpecImage: 2, Unknown: 4, Foreign: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append([]client.Object{policy("a", tc.edits...)}, fleet...)...)
			st := w.show()
			require.Equal(t, tc.want, *st.Machines)
			require.Equal(t, tc.want.Foreign > 0, apimeta.IsStatusConditionTrue(st.Conditions, refitv1.ForeignMachinesCondition))
			require.True(t, apimeta.IsStatusConditionTrue(st.Conditions, refitv1.ReadyCondition))
			require.LessOrEqual(t, w.lists, 1, "infrastructure machines of a kind are read at once")
		})
	}
}

func TestSkew(t *testing.T) {
	t.Run("none", func(t *testing.T) {
		w := newWorld(t, append(booted("m", newName, newImage), policy("a", minimum("v1.36.1")))...)
		w.show()
		c := w.condition(refitv1.BootImageSkewCondition)
		require.Equal(t, metav1.ConditionFalse, c.Status)
		require.Equal(t, reasonNew, c.Reason)
		w.RequireNoEvent()
	})
	t.Run("no minimum", func(t *testing.T) {
		w := newWorld(t, append(booted("m", oldName, oldImage), policy("a"))...)
		w.show()
		require.Equal(t, reasonNoLimit, w.condition(refitv1.BootImageSkewCondition).Reason)
	})
	t.Run("a version that is not known", func(t *testing.T) {
		w := newWorld(t, append(booted("m", unknownImage, newImage), policy("a", minimum("1.36")))...)
		w.show()
		c := w.condition(refitv1.BootImageSkewCondition)
		require.Equal(t, metav1.ConditionUnknown, c.Status)
		require.Contains(t, c.Message, "of 1 of 1 machines it is not known in which version their images are: m; set versionPattern")
	})
	t.Run("what machines boot that are made later", func(t *testing.T) {
		w := newWorld(t, append(booted("m", newName, oldImage), policy("a", minimum("1.36")))...)
		w.show()
		require.Equal(t, metav1.ConditionTrue, w.condition(refitv1.BootImageSkewCondition).Status)
	})
	t.Run("many, and then none", func(t *testing.T) {
		var fleet []client.Object
		for i := range maxNamed + 2 {
			fleet = append(fleet, booted(fmt.Sprintf("m%02d", i), oldName, newImage)...)
		}
		w := newWorld(t, append(fleet, policy("a", minimum("1.36")))...)
		w.show()
		c := w.condition(refitv1.BootImageSkewCondition)
		require.Equal(t, metav1.ConditionTrue, c.Status)
		require.Contains(t, c.Message, "of 12 machines 12 have booted, or name in their infrastructure machines, an image older than 1.36: m00, m01,")
		require.Contains(t, c.Message, "m09 and 2 more; give their templates a newer image")
		w.RequireEvent("^Warning ImagesTooOld of 12 machines")
		w.change("a", minimum("1.35"))
		w.show()
		require.Equal(t, metav1.ConditionFalse, w.condition(refitv1.BootImageSkewCondition).Status)
		w.RequireEvent("^Normal ImagesNewEnough")
	})
}

func TestForeignMachinesAreReported(t *testing.T) {
	w := newWorld(t, policy("a"), capiMachine("m", "Metal3Machine"), controlledBy(metal("m", oldImage), "example.com/v1", "Fleet", "f"))
	w.show()
	require.Contains(t, w.condition(refitv1.ForeignMachinesCondition).Message, "which are left alone: m (Fleet f)")
	w.RequireEvent("^Warning ForeignController")
	require.Empty(t, w.Policy("a").Status.History)
	require.NoError(t, w.Delete(t.Context(), metal("m", "")))
	w.show()
	require.Nil(t, w.condition(refitv1.ForeignMachinesCondition))
}

func TestStatusIsWrittenWhenItChanges(t *testing.T) {
	w := newWorld(t, append(booted("m", oldName, oldImage), policy("a"))...)
	st := w.show()
	require.EqualValues(t, 1, st.ObservedGeneration)
	w.Clock.Step(time.Hour)
	for range 3 {
		require.Equal(t, st, w.show())
	}
	require.Equal(t, 1, w.StatusWrites)

	// The policy was changed, and that was not read yet.
	p := w.Policy("a")
	p.Generation++
	require.NoError(t, w.Update(t.Context(), p))
	require.Equal(t, time.Second, w.Reconcile(w.status(), "a").RequeueAfter)
	w.Reread("a")
	require.EqualValues(t, 2, w.show().ObservedGeneration)

	w.Down = true
	_, err := w.status().Reconcile(t.Context(), request("a"))
	require.ErrorIs(t, err, policykindtest.ErrDown)
	w.Down = false
	w.Reconcile(w.status(), "gone")
}

func TestHistoryInStatus(t *testing.T) {
	w := newWorld(t, append(booted("m", oldName, oldImage), policy("a"))...)
	first := w.Clock.Now()
	w.show()
	w.Clock.Step(time.Hour)
	var obj unstructured.Unstructured
	obj.SetGroupVersionKind(metal("m", "").GroupVersionKind())
	require.NoError(t, w.Client.Get(t.Context(), request("m").NamespacedName, &obj))
	require.NoError(t, unstructured.SetNestedField(obj.Object, newImage, "spec", "image", "url"))
	require.NoError(t, w.Update(t.Context(), &obj))
	st := w.show()
	require.Len(t, st.History, 2)
	require.Equal(t, "Metal3Machine", st.History[0].Kind)
	require.Equal(t, newName, st.History[0].Image)
	require.EqualValues(t, 1, st.History[0].Machines)
	require.True(t, st.History[0].Since.Time.Equal(first.Add(time.Hour)))
	require.Equal(t, oldName, st.History[1].Image)
	require.Zero(t, st.History[1].Machines)
	require.True(t, st.History[1].Since.Time.Equal(first))
	require.Zero(t, st.Machines.AtSpecImage)
}

func TestRemember(t *testing.T) {
	at := time.Date(2026, 10, 3, 20, 0, 0, 0, time.UTC)
	images := func(from, to int) map[named]int32 {
		out := map[named]int32{}
		for i := from; i < to; i++ {
			out[named{"Metal3Machine", fmt.Sprintf("image-%02d", i)}] = 1
		}
		return out
	}
	t.Run("bounded, and what nobody names goes first, the oldest of it before the rest", func(t *testing.T) {
		var history []refitv1.BootImageRecord
		for i := range maxHistory + 5 {
			history = remember(history, images(i, i+1), at.Add(time.Duration(i)*time.Hour))
			require.Len(t, history, min(i+1, maxHistory))
			require.Equal(t, fmt.Sprintf("image-%02d", i), history[0].Image)
		}
		require.Equal(t, "image-05", history[maxHistory-1].Image)
	})
	t.Run("more than it holds are named at once", func(t *testing.T) {
		history := remember(nil, images(0, maxHistory+5), at)
		require.Len(t, history, maxHistory)
		require.Equal(t, history, remember(history, images(0, maxHistory+5), at.Add(time.Hour)), "they do not push each other out")
	})
	t.Run("an image that is named for long stays", func(t *testing.T) {
		history := remember(nil, images(0, 1), at)
		for i := range 2 * maxHistory {
			now := images(i+1, i+2)
			now[named{"Metal3Machine", "image-00"}] = 3
			history = remember(history, now, at.Add(time.Duration(i+1)*time.Hour))
		}
		last := history[len(history)-1]
		require.Equal(t, "image-00", last.Image)
		require.EqualValues(t, 3, last.Machines)
		require.True(t, last.Since.Time.Equal(at))
	})
}

func TestStatusOfAPolicyThatCanNotBeRead(t *testing.T) {
	w := newWorld(t, append(booted("m", oldName, oldImage), policy("a", minimum("1.36")), policy("b"))...)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(&Collector{Client: w})
	w.show()
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP refit_boot_image_machines Machines that the BootImagePolicy selects.
# TYPE refit_boot_image_machines gauge
refit_boot_image_machines{namespace="fleet",policy="a"} 1
# HELP refit_boot_image_policy_ready Whether the BootImagePolicy can be read: 0 no, and no change of an image is decided for the Machines that it selects; 1 yes.
# TYPE refit_boot_image_policy_ready gauge
refit_boot_image_policy_ready{namespace="fleet",policy="a"} 1
# HELP refit_boot_image_skewed_machines Machines that have booted, or would boot again, from an image older than the BootImagePolicy's minimumVersion.
# TYPE refit_boot_image_skewed_machines gauge
refit_boot_image_skewed_machines{namespace="fleet",policy="a"} 1
# HELP refit_boot_image_unknown_machines Machines of which it is not known from which image they have booted or, where a minimumVersion counts, in which version.
# TYPE refit_boot_image_unknown_machines gauge
refit_boot_image_unknown_machines{namespace="fleet",policy="a"} 0
# HELP refit_stale_templates Whether templates would make machines with an older version of Kubernetes than machines run that the BootImagePolicy selects: 0 no; 1 yes.
# TYPE refit_stale_templates gauge
refit_stale_templates{namespace="fleet",policy="a"} 1
`)))
	w.RequireEvent("^Warning ImagesTooOld")
	w.RequireEvent("^Warning TemplatesOlderThanMachines")

	w.change("a", func(s *spec) { s.VersionPattern = "(" })
	st := w.show()
	require.Nil(t, st.Machines, "what was counted by another policy is not this one's")
	require.Len(t, st.History, 1)
	require.Nil(t, w.condition(refitv1.BootImageSkewCondition))
	c := w.condition(refitv1.ReadyCondition)
	require.Equal(t, metav1.ConditionFalse, c.Status)
	require.Equal(t, reasonInvalid, c.Reason)
	require.Contains(t, c.Message, "versionPattern: ")
	w.RequireEvent(`^Warning InvalidPolicy the policy can't be read`)
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP refit_boot_image_policy_ready Whether the BootImagePolicy can be read: 0 no, and no change of an image is decided for the Machines that it selects; 1 yes.
# TYPE refit_boot_image_policy_ready gauge
refit_boot_image_policy_ready{namespace="fleet",policy="a"} 0
`), "refit_boot_image_policy_ready"))

	w.change("a", func(s *spec) { s.VersionPattern = "" })
	require.EqualValues(t, 1, w.show().Machines.Skewed)
	w.RequireEvent("^Normal Read")
}

// pages is a stand-in for an API server that gives lists in pages.
type pages struct {
	client.Reader
	names [][]string
}

func (p *pages) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	page := 0
	if o.Continue != "" {
		page = len(o.Continue)
	}
	u, ok := list.(*unstructured.UnstructuredList)
	if !ok || o.Limit != chunk || o.Namespace != "fleet" || u.GetKind() != "Metal3MachineList" {
		return fmt.Errorf("asked for %T %+v", list, o)
	}
	for _, name := range p.names[page] {
		u.Items = append(u.Items, *metal(name, oldImage))
	}
	if page+1 < len(p.names) {
		u.SetContinue(strings.Repeat("x", page+1))
	}
	return nil
}

func TestEveryPageIsRead(t *testing.T) {
	var got []string
	server := &pages{names: [][]string{{"a", "b"}, {"c"}, {}, {"d"}}}
	require.NoError(t, eachMachine(t.Context(), server, metal("a", oldImage), func(o *unstructured.Unstructured) { got = append(got, o.GetName()) }))
	require.Equal(t, []string{"a", "b", "c", "d"}, got)
	require.Error(t, eachMachine(t.Context(), server, infraObject("AWSMachine", "a", "x", "y"), func(*unstructured.Unstructured) {}))
}
