package bootimage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
)

const (
	oldImage, newImage = "https://mirror.example.org/k8s-v1.35.0.qcow2", "https://mirror.example.org/k8s-v1.36.1.qcow2"
	oldName, newName   = "image.url=" + oldImage, "image.url=" + newImage
)

func TestBootedImageIsNoted(t *testing.T) {
	inPlace := func(o *unstructured.Unstructured) *unstructured.Unstructured {
		a := o.GetAnnotations()
		if a == nil {
			a = map[string]string{}
		}
		a[clusterv1.UpdateInProgressAnnotation] = ""
		o.SetAnnotations(a)
		return o
	}
	update := &refitv1.MachineUpdate{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "m"}}
	aws := func(at ...string) *unstructured.Unstructured {
		return madeFrom(infraObject("AWSMachine", "m", at...))
	}
	foo := kinds("FooMachine", "disk.image")
	for name, tc := range map[string]struct {
		policy  *refitv1.BootImagePolicy
		machine *clusterv1.Machine
		infra   []client.Object
		want    string
	}{
		"as it was made":                              {policy("a"), capiMachine("m", "Metal3Machine"), []client.Object{metal("m", oldImage)}, oldName},
		"whatever the mode":                           {policy("a", mode(refitv1.NoBootImages)), capiMachine("m", "Metal3Machine"), []client.Object{metal("m", oldImage)}, oldName},
		"its provider has written to it":              {policy("a"), capiMachine("m", "Metal3Machine"), []client.Object{madeFrom(metal("m", oldImage)), metalTemplate("t1", oldImage)}, oldName},
		"its template has another image":              {policy("a"), capiMachine("m", "Metal3Machine"), []client.Object{madeFrom(metal("m", oldImage)), metalTemplate("t1", newImage)}, unknownImage},
		"its template is gone":                        {policy("a"), capiMachine("m", "Metal3Machine"), []client.Object{madeFrom(metal("m", oldImage))}, unknownImage},
		"it was made from no template":                {policy("a"), capiMachine("m", "Metal3Machine"), []client.Object{func() client.Object { o := metal("m", oldImage); o.SetGeneration(2); return o }()}, unknownImage},
		"it was updated in place":                     {policy("a"), capiMachine("m", "Metal3Machine"), []client.Object{metal("m", oldImage), update}, unknownImage},
		"it is about to be updated in place":          {policy("a"), capiMachine("m", "Metal3Machine"), []client.Object{inPlace(madeFrom(metal("m", newImage))), metalTemplate("t1", newImage)}, unknownImage},
		"it is being updated in place":                {policy("a"), capiMachine("m", "Metal3Machine", annotate(clusterv1.UpdateInProgressAnnotation, "")), []client.Object{metal("m", oldImage)}, unknownImage},
		"the provider finds the image":                {policy("a"), capiMachine("m", "AWSMachine"), []client.Object{aws("instanceType", "x"), infraObject("AWSMachineTemplate", "t1", "template", "spec", "instanceType", "x")}, "implicit: v1.36.1"},
		"an image by its id":                          {policy("a"), capiMachine("m", "AWSMachine"), []client.Object{aws("ami", "id", "ami-1"), infraObject("AWSMachineTemplate", "t1", "template", "spec", "ami", "id", "ami-1")}, "ami.id=ami-1"},
		"a kind of the operator's":                    {policy("a", foo), capiMachine("m", "FooMachine"), []client.Object{infraObject("FooMachine", "m", "disk", "image", "x")}, "disk.image=x"},
		"what is noted stays":                         {policy("a"), capiMachine("m", "Metal3Machine", annotate(refitv1.BootedImageAnnotation, "x")), []client.Object{metal("m", oldImage)}, "x"},
		"no policy selects it":                        {policy("a", roles(refitv1.ControlPlaneRole)), capiMachine("m", "Metal3Machine"), []client.Object{metal("m", oldImage)}, ""},
		"a kind that nobody knows":                    {policy("a"), capiMachine("m", "FooMachine"), []client.Object{infraObject("FooMachine", "m", "disk", "image", "x")}, ""},
		"something else than Cluster API controls it": {policy("a"), capiMachine("m", "Metal3Machine"), []client.Object{controlledBy(metal("m", oldImage), "example.com/v1", "Fleet", "f")}, ""},
		"its Machine controls it":                     {policy("a"), capiMachine("m", "Metal3Machine"), []client.Object{controlledBy(metal("m", oldImage), "cluster.x-k8s.io/v1beta2", "Machine", "m")}, oldName},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append([]client.Object{tc.policy, tc.machine}, tc.infra...)...)
			got, again := w.record()
			require.Equal(t, tc.want, got)
			require.Zero(t, again)
			reads := w.reads
			got, _ = w.record()
			require.Equal(t, tc.want, got)
			if tc.want != "" {
				require.Equal(t, reads, w.reads, "it is looked at once")
			}
		})
	}
}

func TestBootedImageIsNotedLater(t *testing.T) {
	t.Run("no infrastructure machine yet", func(t *testing.T) {
		w := newWorld(t, policy("a"), capiMachine("m", "Metal3Machine"))
		got, again := w.record()
		require.Empty(t, got)
		require.Equal(t, recordAgain, again)
		require.NoError(t, w.Create(t.Context(), metal("m", oldImage)))
		got, _ = w.record()
		require.Equal(t, oldName, got)
	})
	t.Run("no reference to one yet", func(t *testing.T) {
		w := newWorld(t, policy("a"), capiMachine("m", "Metal3Machine", func(m *clusterv1.Machine) { m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{} }))
		got, again := w.record()
		require.Empty(t, got)
		require.Zero(t, again)
	})
	t.Run("a paused machine", func(t *testing.T) {
		w := newWorld(t, policy("a"), capiMachine("m", "Metal3Machine", annotate(clusterv1.PausedAnnotation, "")), metal("m", oldImage))
		got, again := w.record()
		require.Empty(t, got)
		require.Equal(t, recordAgain, again)
	})
	t.Run("a machine that is gone", func(t *testing.T) {
		w := newWorld(t, policy("a"))
		_, err := (&Recorder{Client: w, Live: w, Policies: w.policies}).Reconcile(t.Context(), request("m"))
		require.NoError(t, err)
	})
	t.Run("a server that is down", func(t *testing.T) {
		w := newWorld(t, policy("a"), capiMachine("m", "Metal3Machine"), metal("m", oldImage))
		w.Down = true
		_, err := (&Recorder{Client: w, Live: w, Policies: w.policies}).Reconcile(t.Context(), request("m"))
		require.ErrorIs(t, err, policykindtest.ErrDown)
		w.Down = false
		got, _ := w.record()
		require.Equal(t, oldName, got)
	})
	t.Run("a machine that has changed since it was read", func(t *testing.T) {
		m := capiMachine("m", "Metal3Machine")
		w := newWorld(t, policy("a"), m, metal("m", oldImage))
		var read clusterv1.Machine
		require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(m), &read))
		changed := read.DeepCopy()
		changed.Labels = map[string]string{"x": "y"}
		require.NoError(t, w.Update(t.Context(), changed))
		r := &Recorder{Client: w, Live: w, Policies: w.policies}
		result, err := r.write(t.Context(), &read, oldName)
		require.NoError(t, err)
		require.Equal(t, time.Second, result.RequeueAfter, "it is looked at again")
		require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(m), changed))
		require.Empty(t, changed.Annotations)
		require.Empty(t, read.Annotations, "what a cache has is not changed")
	})
}

func TestAPolicyHasMachinesLookedAt(t *testing.T) {
	w := newWorld(t, policy("a"), capiMachine("m1", "Metal3Machine"), capiMachine("m2", "Metal3Machine", annotate(refitv1.BootedImageAnnotation, "x")))
	r := &Recorder{Client: w, Live: w, Policies: w.policies}
	requests := r.unrecordedMachines(t.Context(), w.Policy("a"))
	require.Len(t, requests, 1)
	require.Equal(t, "m1", requests[0].Name)
}
