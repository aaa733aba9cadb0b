package rotation

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// aged is a template that refit made, the older the smaller n.
func aged(n int, edits ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	o := template(agedName(n), fmt.Sprintf("https://images.example/aged-%d", n))
	o.SetCreationTimestamp(metav1.NewTime(time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC)))
	return with(o, append([]func(*unstructured.Unstructured){
		labelled(refitv1.BootImageTemplateLabel, ""), annotated(refitv1.BootImageBaseAnnotation, "base"),
		annotated(refitv1.BootImagePolicyAnnotation, "p"),
	}, edits...)...)
}

func agedName(n int) string { return fmt.Sprintf("base-%010x", n) }

func TestCollect(t *testing.T) {
	otherwise := func(edit func(*unstructured.Unstructured)) *unstructured.Unstructured { return aged(1, edit) }
	for name, tc := range map[string]struct {
		oldest *unstructured.Unstructured
		more   []client.Object
		kept   bool
	}{
		"nothing refers to it":                                   {aged(1), nil, false},
		"a MachineDeployment refers to it":                       {aged(1), []client.Object{with(deployment("other", "Metal3MachineTemplate", agedName(1)), labelled("golden", "no"))}, true},
		"a MachineDeployment refers to another kind of the name": {aged(1), []client.Object{deployment("other", "AWSMachineTemplate", agedName(1))}, false},
		"a KubeadmControlPlane refers to it":                     {aged(1), []client.Object{with(controlPlane(agedName(1)), labelled("golden", "no"))}, true},
		"a MachineSet refers to it": {aged(1), []client.Object{made(clusterv1.GroupVersion.WithKind("MachineSet"), "ms", object{
			"clusterName": "c1", "template": object{"spec": object{
				"infrastructureRef": object{"apiGroup": infrastructure, "kind": "Metal3MachineTemplate", "name": agedName(1)},
			}},
		})}, true},
		"a machine was made from it": {aged(1), []client.Object{with(made(infra("Metal3Machine"), "m", object{}),
			annotated(clusterv1.TemplateClonedFromNameAnnotation, agedName(1)))}, true},
		"another policy made it":          {otherwise(annotated(refitv1.BootImagePolicyAnnotation, "q")), nil, true},
		"refit did not make it":           {otherwise(func(o *unstructured.Unstructured) { o.SetLabels(nil) }), nil, true},
		"it is a copy that somebody made": {otherwise(func(o *unstructured.Unstructured) { o.SetName("base-mine") }), nil, true},
		"somebody else owns it too": {otherwise(func(o *unstructured.Unstructured) {
			o.SetOwnerReferences(append(o.GetOwnerReferences(), metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "ClusterClass", Name: "cc"}))
		}), nil, true},
		"its Cluster is not known": {otherwise(func(o *unstructured.Unstructured) {
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c2"}})
		}), nil, true},
		"it descends from another template": {otherwise(func(o *unstructured.Unstructured) {
			annotated(refitv1.BootImageBaseAnnotation, "other")(o)
			o.SetName("other-0000000001")
		}), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append(basis(), deployment("workers", "Metal3MachineTemplate", "base"), tc.oldest, aged(2))
			w := newWorld(t, append(objects, tc.more...)...)
			w.settle() // makes the third
			if tc.kept {
				require.Contains(t, w.templates(), tc.oldest.GetName())
			} else {
				require.NotContains(t, w.templates(), tc.oldest.GetName())
			}
			for _, stays := range []string{"base", agedName(2), w.refersTo(deployments, "workers")} {
				require.Contains(t, w.templates(), stays)
			}
		})
	}
}

// TestNothingIsDeletedInAPausedCluster: clusterctl may be about to move it.
func TestNothingIsDeletedInAPausedCluster(t *testing.T) {
	w := newWorld(t, append(basis(), deployment("workers", "Metal3MachineTemplate", agedName(3)), aged(1), aged(2), aged(3))...)
	w.pause(true)
	w.settle()
	require.Zero(t, w.deletes)
	w.pause(false)
	w.settle()
	require.Equal(t, 2, w.deletes, "the two oldest, of four")
}
