package rotation

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind/policykindtest"
)

func TestRotates(t *testing.T) {
	for name, tc := range map[string]struct {
		family
		object *unstructured.Unstructured
	}{
		"a MachineDeployment":   {deployments, deployment("workers", "Metal3MachineTemplate", "base")},
		"a KubeadmControlPlane": {controlPlanes, controlPlane("base")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(basis(), tc.object)...)
			name := tc.object.GetName()
			result, err := w.reconcile()
			require.NoError(t, err)
			require.Equal(t, settling, result.RequeueAfter)
			require.Equal(t, refitv1.TargetPending, w.target().State, "other replicas may not know the policy yet")
			require.Equal(t, "base", w.refersTo(tc.family, name))
			require.Zero(t, w.creates)

			w.settle()
			made := w.refersTo(tc.family, name)
			require.Regexp(t, `^base-[0-9a-f]{10}$`, made)
			require.Equal(t, refitv1.BootImageTarget{
				Kind: tc.gvk.Kind, Name: name, State: refitv1.TargetRotated, Image: newImage, Template: made, Times: 1,
			}, w.target())
			require.Equal(t, metav1.ConditionTrue, w.condition().Status)
			require.Len(t, w.told(), 1)

			wanted := template("base", newImage)
			require.NoError(t, unstructured.SetNestedField(wanted.Object, sum, "spec", "template", "spec", "image", "checksum"))
			got := w.object(infra("Metal3MachineTemplate"), made)
			require.Equal(t, wanted.Object["spec"], got.Object["spec"], "a copy with the image in it")
			require.Equal(t, map[string]string{"team": "os", refitv1.BootImageTemplateLabel: ""}, got.GetLabels())
			require.Equal(t, map[string]string{
				"note": "kept", refitv1.BootImagePolicyAnnotation: "p", refitv1.BootImageBaseAnnotation: "base",
			}, got.GetAnnotations())
			require.Equal(t, clusterOwner, got.GetOwnerReferences())
			require.Equal(t, template("base", oldImage).Object["spec"], w.object(infra("Metal3MachineTemplate"), "base").Object["spec"])

			before := w.policy()
			creates, patches := w.creates, w.patches
			w.settle()
			require.Equal(t, before, w.policy(), "a repeat changes nothing")
			require.Equal(t, []int{creates, patches, 0}, []int{w.creates, w.patches, w.deletes})
			require.Empty(t, w.told())
		})
	}
}

func TestTargetsOfOneTemplateShareTheNext(t *testing.T) {
	w := newWorld(t, append(basis(), deployment("a", "Metal3MachineTemplate", "base"), deployment("b", "Metal3MachineTemplate", "base"))...)
	w.settle()
	require.Equal(t, 1, w.creates)
	require.Equal(t, w.refersTo(deployments, "a"), w.refersTo(deployments, "b"))
	require.Equal(t, int32(2), *w.policy().Status.Rotation.UpToDate)
}

func TestTheNextImageDescendsFromTheSameTemplate(t *testing.T) {
	w := newWorld(t, append(basis(), deployment("workers", "Metal3MachineTemplate", "base"))...)
	w.settle()
	first := w.refersTo(deployments, "workers")
	require.NoError(t, w.Update(t.Context(), images(map[string]string{"stream": stream("https://images.example/os-3.qcow2")})))
	w.settle()
	second := w.refersTo(deployments, "workers")
	require.NotEqual(t, first, second)
	require.Regexp(t, `^base-[0-9a-f]{10}$`, second)
	require.Equal(t, int32(1), w.target().Times)
}

// TestDeath kills refit between its two writes.
func TestDeath(t *testing.T) {
	w := newWorld(t, append(basis(), deployment("workers", "Metal3MachineTemplate", "base"))...)
	_, err := w.reconcile()
	require.NoError(t, err)
	w.Clock.Step(settling)
	w.onPatch = func(client.Object, bool) error { return policykindtest.ErrDown }
	_, err = w.reconcile()
	require.ErrorIs(t, err, policykindtest.ErrDown)
	require.Equal(t, 1, w.creates)
	require.Equal(t, "base", w.refersTo(deployments, "workers"))

	w.onPatch = nil
	w.settle()
	require.Equal(t, 1, w.creates, "the template that was made is found again")
	require.NotEqual(t, "base", w.refersTo(deployments, "workers"))
}

func TestLeftAlone(t *testing.T) {
	metal := func(edits ...func(*unstructured.Unstructured)) []client.Object {
		return []client.Object{with(deployment("workers", "Metal3MachineTemplate", "base"), edits...)}
	}
	cloud := made(infra("AWSMachineTemplate"), "cloud", object{"template": object{"spec": object{"ami": object{"id": "ami-1"}}}})
	aws := func(s *refitv1.BootImagePolicySpec) {
		s.Rotation.Template.Kind, s.Rotation.Template.Fields = "AWSMachineTemplate", []refitv1.BootImageField{{Path: "ami.id"}}
	}
	for name, tc := range map[string]struct {
		objects []client.Object
		replace client.Object // something of the basis
		edit    func(*refitv1.BootImagePolicySpec)
		state   refitv1.BootImageTargetState
		message string
	}{
		"it has the image": {
			objects: metal(), replace: template("base", newImage),
			edit:  func(s *refitv1.BootImagePolicySpec) { s.Rotation.Template.Fields = s.Rotation.Template.Fields[:1] },
			state: refitv1.TargetUpToDate,
		},
		"it is paused": {
			objects: metal(annotated("cluster.x-k8s.io/paused", "")), state: refitv1.TargetPaused, message: "is paused",
		},
		"it is made from a ClusterClass": {
			objects: metal(labelled("topology.cluster.x-k8s.io/owned", "")), state: refitv1.TargetForeign, message: "ClusterClass",
		},
		"its template is made from a ClusterClass": {
			objects: metal(), replace: with(template("base", oldImage), labelled("topology.cluster.x-k8s.io/owned", "")),
			state: refitv1.TargetForeign, message: "Metal3MachineTemplate base is made from a ClusterClass",
		},
		"its template has another controller": {
			objects: metal(), replace: with(template("base", oldImage), controlledBy("example.com/v1", "NodePool")),
			state: refitv1.TargetForeign, message: "controlled by NodePool boss",
		},
		"it has another controller": {
			objects: metal(controlledBy("example.com/v1", "Fleet")), state: refitv1.TargetForeign, message: "MachineDeployment workers is controlled by Fleet boss",
		},
		"the provider's webhook forbids it": {
			objects: []client.Object{cloud, deployment("workers", "AWSMachineTemplate", "cloud")}, edit: aws,
			state: refitv1.TargetRefused, message: "nothing was committed, since Cluster API would replace machines: spec.ami.id: the provider's webhook does not let",
		},
		"no machine is selected": {
			objects: metal(), edit: func(s *refitv1.BootImagePolicySpec) { s.Selection.Mode = refitv1.NoBootImages },
			state: refitv1.TargetRefused, message: "by selection of BootImagePolicy p the machine is none",
		},
		"other machines are selected": {
			objects: metal(), edit: func(s *refitv1.BootImagePolicySpec) {
				s.Selection.Mode, s.Selection.Machines = refitv1.PartialBootImages, &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "x"}}
			},
			state: refitv1.TargetRefused, message: "Cluster API would replace machines",
		},
		"another policy comes first": {
			objects: append(metal(), policy("a")), state: refitv1.TargetRefused, message: "BootImagePolicy a selects it too",
		},
		"the field is no image": {
			objects: metal(),
			edit: func(s *refitv1.BootImagePolicySpec) {
				s.Rotation.Template.Fields, s.Rotation.Replacement = []refitv1.BootImageField{{Path: "automatedCleaningMode"}}, refitv1.AllowReplacement
			},
			state: refitv1.TargetRefused, message: "does not know automatedCleaningMode of a Metal3Machine to be its image",
		},
		"a machine more would be made": {
			objects: metal(field(int64(0), "spec", "rollout", "strategy", "rollingUpdate", "maxUnavailable")),
			state:   refitv1.TargetRefused, message: "maxUnavailable",
		},
		"a control-plane machine more would be made": {
			objects: []client.Object{with(controlPlane("base"), field(int64(1), "spec", "rollout", "strategy", "rollingUpdate", "maxSurge"))},
			state:   refitv1.TargetRefused, message: "maxSurge",
		},
		"its template is not there": {
			objects: []client.Object{deployment("workers", "Metal3MachineTemplate", "gone")},
			state:   refitv1.TargetRefused, message: "there is no Metal3MachineTemplate gone",
		},
		"there is no image for its version": {
			objects: metal(), replace: images(map[string]string{"stream.v1.35": stream(newImage)}),
			state: refitv1.TargetRefused, message: "none of the keys stream.v1.36.1, stream.v1.36, stream",
		},
		"the ConfigMap can't be read": {
			objects: metal(), replace: images(map[string]string{"stream": "{"}), state: refitv1.TargetRefused, message: "neither JSON nor YAML",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(basis(), tc.objects...)...)
			if tc.replace != nil {
				there, _ := tc.replace.DeepCopyObject().(client.Object)
				require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(there), there))
				tc.replace.SetResourceVersion(there.GetResourceVersion())
				require.NoError(t, w.Update(t.Context(), tc.replace))
			}
			if tc.edit != nil {
				w.Change("p", tc.edit)
			}
			w.settle()
			got := w.target()
			require.Equal(t, tc.state, got.State, got.Message)
			require.Contains(t, got.Message, tc.message)
			require.Zero(t, w.creates, "no template was made")
			require.Equal(t, good(tc.state), w.condition().Status == metav1.ConditionTrue)
			if tc.state == refitv1.TargetRefused {
				require.Len(t, w.told(), 1)
			}
			w.settle()
			require.Empty(t, w.told(), "said once")
		})
	}
}

func TestAPausedClusterIsLeftAlone(t *testing.T) {
	w := newWorld(t, append(basis(), deployment("workers", "Metal3MachineTemplate", "base"))...)
	w.pause(true)
	w.settle()
	require.Equal(t, refitv1.TargetPaused, w.target().State)
	w.pause(false)
	w.settle()
	require.Equal(t, refitv1.TargetRotated, w.target().State)
}

// TestReplacementAllowed: whoever allows that machines are replaced has what they asked for.
func TestReplacementAllowed(t *testing.T) {
	cloud := made(infra("AWSMachineTemplate"), "cloud", object{"template": object{"spec": object{"ami": object{"id": "ami-1"}}}})
	w := newWorld(t, append(basis(), cloud, deployment("workers", "AWSMachineTemplate", "cloud"))...)
	w.Change("p", func(s *refitv1.BootImagePolicySpec) {
		s.Rotation.Template.Kind, s.Rotation.Template.Fields = "AWSMachineTemplate", []refitv1.BootImageField{{Path: "ami.id"}}
		s.Rotation.Replacement = refitv1.AllowReplacement
	})
	w.settle()
	require.Equal(t, refitv1.TargetRotated, w.target().State)
	require.NotEqual(t, "cloud", w.refersTo(deployments, "workers"))
}

// TestNotSelected: what is not a target is not looked at.
func TestNotSelected(t *testing.T) {
	for name, tc := range map[string]struct {
		object *unstructured.Unstructured
		edit   func(*refitv1.BootImagePolicySpec)
	}{
		"by its labels":                   {with(deployment("workers", "Metal3MachineTemplate", "base"), labelled("golden", "no")), nil},
		"its template is of another kind": {deployment("workers", "AWSMachineTemplate", "base"), nil},
		"only control planes are": {deployment("workers", "Metal3MachineTemplate", "base"), func(s *refitv1.BootImagePolicySpec) {
			s.Rotation.Targets.MachineDeployments = nil
		}},
		"its Cluster is not": {deployment("workers", "Metal3MachineTemplate", "base"), func(s *refitv1.BootImagePolicySpec) {
			s.Selector.Clusters.MatchLabels = map[string]string{"env": "test"}
		}},
		"its role is not": {deployment("workers", "Metal3MachineTemplate", "base"), func(s *refitv1.BootImagePolicySpec) {
			s.Selector.Roles = []refitv1.Role{refitv1.ControlPlaneRole}
		}},
		"its machines are not": {deployment("workers", "Metal3MachineTemplate", "base"), func(s *refitv1.BootImagePolicySpec) {
			s.Selector.Machines.MatchLabels = map[string]string{"pool": "others"}
		}},
		"its Cluster is not there": {with(deployment("workers", "Metal3MachineTemplate", "base"), field("c2", "spec", "clusterName")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(basis(), tc.object)...)
			if tc.edit != nil {
				w.Change("p", tc.edit)
			}
			w.settle()
			require.Empty(t, w.policy().Status.Rotation.Targets)
			require.Contains(t, w.condition().Message, "no target is selected")
			require.Zero(t, w.creates)
		})
	}
}

func TestUnusable(t *testing.T) {
	for name, tc := range map[string]struct {
		edit    func(*refitv1.BootImagePolicySpec)
		message string
	}{
		"no ConfigMap": {func(s *refitv1.BootImagePolicySpec) { s.Rotation.ConfigMap = "none" }, "there is no ConfigMap fleet/none"},
		"a selector that can't be read": {func(s *refitv1.BootImagePolicySpec) {
			s.Rotation.Targets.MachineDeployments = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}}
		}, "spec.rotation.targets can't be read"},
		"clusters that can't be read": {func(s *refitv1.BootImagePolicySpec) {
			s.Selector.Clusters.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}}
		}, "selector.clusters"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(basis(), deployment("workers", "Metal3MachineTemplate", "base"))...)
			w.Change("p", tc.edit)
			w.settle()
			c := w.condition()
			require.Equal(t, metav1.ConditionUnknown, c.Status)
			require.Contains(t, c.Message, tc.message)
			require.Len(t, w.told(), 1)
			require.Equal(t, "base", w.refersTo(deployments, "workers"))
		})
	}
}
