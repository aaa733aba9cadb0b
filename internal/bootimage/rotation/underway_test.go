package rotation

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// machineSet is one of the MachineDeployment workers, of its template, with machines that it is to have and that it has.
func machineSet(name string, wanted, there int64) *unstructured.Unstructured {
	return with(made(machineSets.gvk, name, object{"replicas": wanted}), field(there, "status", "replicas"),
		field("Metal3MachineTemplate", "spec", "template", "spec", "infrastructureRef", "kind"),
		field(infrastructure, "spec", "template", "spec", "infrastructureRef", "apiGroup"),
		refersTo("base"), labelled(clusterv1.MachineDeploymentNameLabel, "workers"))
}

func refersTo(template string) func(*unstructured.Unstructured) {
	return field(template, "spec", "template", "spec", "infrastructureRef", "name")
}

func observed(generation, observed int64) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		o.SetGeneration(generation)
		field(observed, "status", "observedGeneration")(o)
	}
}

// TestUnderWay: a template does not change in the middle of a rollout, not even between two of its steps.
func TestUnderWay(t *testing.T) {
	for name, tc := range map[string]struct {
		generation, observed int64
		sets                 []client.Object
		waits                bool
	}{
		"Cluster API has not acted upon the last change": {2, 1, []client.Object{machineSet("old", 2, 2)}, true},
		"a machine is to leave a MachineSet":             {2, 2, []client.Object{machineSet("old", 1, 2), machineSet("new", 0, 0)}, true},
		"a machine is in neither":                        {2, 2, []client.Object{machineSet("old", 1, 1), machineSet("new", 0, 0)}, true},
		"a machine has come that is not counted":         {2, 2, []client.Object{machineSet("old", 1, 1), machineSet("new", 0, 1)}, true},
		"a machine is counted that has not come":         {2, 2, []client.Object{machineSet("old", 1, 1), machineSet("new", 1, 0)}, true},
		"the first of two machines is there":             {2, 2, []client.Object{machineSet("old", 1, 1), machineSet("new", 1, 1)}, true},
		"the rollout is about to begin": {2, 2, []client.Object{
			with(machineSet("old", 2, 2), refersTo("older")), machineSet("new", 0, 0),
		}, true},
		"nothing is rolled out":                        {2, 2, []client.Object{machineSet("old", 0, 0), machineSet("new", 2, 2)}, false},
		"there are machines more than there are to be": {2, 2, []client.Object{machineSet("old", 2, 2), machineSet("new", 1, 1)}, true},
		"another MachineDeployment is rolled out": {2, 2, []client.Object{
			machineSet("only", 2, 2), with(machineSet("other", 1, 2), labelled(clusterv1.MachineDeploymentNameLabel, "others")),
		}, false},
		"there are no MachineSets": {2, 2, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			workers := with(deployment("workers", "Metal3MachineTemplate", "base"), observed(tc.generation, tc.observed))
			w := newWorld(t, append(append(basis(), workers), tc.sets...)...)
			w.settle()
			if !tc.waits {
				require.Equal(t, refitv1.TargetRotated, w.target().State)
				return
			}
			require.Equal(t, refitv1.TargetPending, w.target().State)
			require.Contains(t, w.target().Message, "Cluster API is in the middle of a rollout")
			require.Zero(t, w.creates)
			require.Equal(t, "base", w.refersTo(deployments, "workers"))
			result, err := w.reconcile()
			require.NoError(t, err)
			require.Equal(t, 2*step, result.RequeueAfter, "once a step, at first")
			for range 5 {
				result, err = w.reconcile()
				require.NoError(t, err)
			}
			require.Equal(t, refresh, result.RequeueAfter)

			for _, set := range tc.sets { // now it is done
				require.NoError(t, w.Delete(t.Context(), set))
			}
			require.NoError(t, w.Create(t.Context(), machineSet("done", 2, 2)))
			require.NoError(t, w.Update(t.Context(), with(w.object(deployments.gvk, "workers"), observed(tc.generation, tc.generation))))
			_, err = w.reconcile()
			require.NoError(t, err)
			require.Equal(t, refitv1.TargetRotated, w.target().State)
		})
	}
}

// TestAnImageThatDoesNotBoot: machines are replaced from an image, and the first of them never comes. Where nothing hands machines over
// the next image is brought in the middle of the rollout, which has no end without it.
func TestAnImageThatDoesNotBoot(t *testing.T) {
	cloud := func(name, ami string) *unstructured.Unstructured {
		return made(infra("AWSMachineTemplate"), name, object{"template": object{"spec": object{"ami": object{"id": ami}}}})
	}
	ofCloud := field("AWSMachineTemplate", "spec", "template", "spec", "infrastructureRef", "kind")
	old := func() *unstructured.Unstructured { return with(machineSet("old", 1, 1), refersTo("good"), ofCloud) }
	bad := func() *unstructured.Unstructured { return with(machineSet("new", 1, 1), refersTo("bad"), ofCloud) }
	for name, tc := range map[string]struct {
		replacement refitv1.Replacement
		sets        []client.Object
		state       refitv1.BootImageTargetState
	}{
		"machines are replaced":     {refitv1.AllowReplacement, []client.Object{old(), bad()}, refitv1.TargetRotated},
		"they must not be":          {refitv1.ForbidReplacement, []client.Object{old(), bad()}, refitv1.TargetRefused},
		"a bootstrap differs, too":  {refitv1.AllowReplacement, []client.Object{old(), bad(), with(machineSet("newer", 1, 1), refersTo("bad"), ofCloud)}, refitv1.TargetPending},
		"only a machine is missing": {refitv1.AllowReplacement, []client.Object{bad()}, refitv1.TargetPending},
		"only the bootstrap differs": {
			refitv1.AllowReplacement, []client.Object{with(old(), refersTo("twin")), bad()}, refitv1.TargetPending,
		},
		"there is no telling from what": {
			refitv1.AllowReplacement, []client.Object{with(old(), refersTo("gone")), bad()}, refitv1.TargetPending,
		},
		"they come from another kind": {
			refitv1.AllowReplacement, []client.Object{with(machineSet("old", 1, 1)), bad()}, refitv1.TargetPending,
		},
	} {
		t.Run(name, func(t *testing.T) {
			workers := with(deployment("workers", "AWSMachineTemplate", "bad"), observed(2, 2))
			w := newWorld(t, append(append(basis(), workers, cloud("good", "ami-1"), cloud("bad", "ami-2"), cloud("twin", "ami-2")), tc.sets...)...)
			w.Change("p", func(s *refitv1.BootImagePolicySpec) {
				s.Rotation.Template.Kind, s.Rotation.Template.Fields = "AWSMachineTemplate", []refitv1.BootImageField{{Path: "ami.id"}}
				s.Rotation.Replacement = tc.replacement
			})
			w.settle()
			require.Equal(t, tc.state, w.target().State, w.target().Message)
		})
	}
}

// TestMachinesThatPeopleDeleteHoldNoImageUp: with OnDelete a rollout ends when people have deleted all machines, which may be never.
func TestMachinesThatPeopleDeleteHoldNoImageUp(t *testing.T) {
	workers := with(deployment("workers", "Metal3MachineTemplate", "base"), observed(2, 2), field("OnDelete", "spec", "rollout", "strategy", "type"))
	w := newWorld(t, append(basis(), workers, with(machineSet("old", 2, 2), refersTo("older")), machineSet("new", 0, 0))...)
	w.settle()
	require.Equal(t, refitv1.TargetRotated, w.target().State)
}
