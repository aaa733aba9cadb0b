//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// The images that are golden one after the other.
const (
	firstGolden  = "http://images.example.org/debian-12.9.0.qcow2"
	secondGolden = "http://images.example.org/debian-12.10.0.qcow2"
	thirdGolden  = "http://images.example.org/debian-12.11.0.qcow2"
)

// follows are the labels of a MachineDeployment that is to follow the golden image.
var follows = map[string]string{"golden-image": "follow"}

// publish makes the ConfigMap that says what is golden, and gives the policy a rotation. Nothing follows it yet.
func (g *golden) publish(ctx context.Context, t *testing.T) {
	t.Helper()
	g.configMap = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: g.policy.Namespace, Name: "golden-images"}}
	g.configMap.Data = g.streams(t, firstGolden)
	require.NoError(t, g.Client.Create(ctx, g.configMap))
	t.Cleanup(func() { require.NoError(t, g.Client.Delete(context.WithoutCancel(ctx), g.configMap)) })
	g.changePolicy(ctx, t, func(s *refitv1.BootImagePolicySpec) {
		s.Rotation = &refitv1.BootImageRotation{
			ConfigMap: g.configMap.Name, Platform: "metal", Architecture: "amd64", Region: "berlin",
			Template: refitv1.BootImageTemplate{Group: metalVersion.Group, Kind: metalTemplate, Fields: []refitv1.BootImageField{
				{Path: "image.url"}, {Path: "image.checksum", Value: refitv1.SHA256Value},
			}},
			Targets: refitv1.BootImageTargets{MachineDeployments: &metav1.LabelSelector{MatchLabels: follows}},
		}
	})
}

// followsGolden has the golden image move on twice, and every machine stays. In between somebody sets the template back until refit
// gives way. In the end the rotation is taken away.
func (g *golden) followsGolden(ctx context.Context, t *testing.T) {
	g.stay(ctx, t, g.image)
	mine := g.templates(ctx, t)
	g.leftAlone(ctx, t)
	require.Equal(t, mine, g.templates(ctx, t), "nothing was made as long as it was not to be")
	g.change(ctx, t, allow(1, 0))
	first := g.rotated(ctx, t, firstGolden, 1)
	g.told(ctx, t, "BootImageRotated", g.deployment.Name)
	g.setBack(ctx, t, first)

	second := g.movesOn(ctx, t, "12.10.0", secondGolden)
	require.ElementsMatch(t, append(slices.Clone(mine), first, second), g.templates(ctx, t), "the two newest stay")
	third := g.movesOn(ctx, t, "12.11.0", thirdGolden)
	left := append(slices.Clone(mine), second, third)
	var last []string
	require.NoError(t, poll(ctx, 500*time.Millisecond, func(context.Context) (bool, error) {
		last = g.templates(ctx, t)
		return !slices.Contains(last, first), nil
	}), "the first template, %s, is not collected; there are %v", first, &last)
	require.ElementsMatch(t, left, g.templates(ctx, t), "those of people stay, and the two newest")
	g.optsOut(ctx, t, third, left)
}

// streams are a ConfigMap's data by which an image is golden for the machines' version, architecture and region, and others are for
// others.
func (g *golden) streams(t *testing.T, image string) map[string]string {
	t.Helper()
	stream := func(elsewhere, here string) string {
		at := func(image string) map[string]any {
			sum := sha256.Sum256([]byte(image))
			return map[string]any{"release": "e2e", "image": image, "sha256": hex.EncodeToString(sum[:])}
		}
		metal := at(elsewhere)
		metal["regions"] = map[string]any{"berlin": at(here)}
		document, err := json.Marshal(map[string]any{"architectures": map[string]any{
			"x86_64":  map[string]any{"images": map[string]any{"metal": metal}},
			"aarch64": map[string]any{"images": map[string]any{"metal": at("http://images.example.org/arm64.qcow2")}},
		}})
		require.NoError(t, err)
		return string(document)
	}
	const elsewhere, otherVersion = "http://images.example.org/elsewhere.qcow2", "http://images.example.org/other-version.qcow2"
	return map[string]string{"stream": stream(elsewhere, otherVersion), "stream." + g.version: stream(elsewhere, image)}
}

// leftAlone has the MachineDeployment follow while its template is somebody else's, and its rollout would make a machine more, and
// waits until refit has said both.
func (g *golden) leftAlone(ctx context.Context, t *testing.T) {
	t.Helper()
	g.changeOwners(ctx, t, func(owners []metav1.OwnerReference) []metav1.OwnerReference {
		return append(owners, metav1.OwnerReference{
			APIVersion: "v1", Kind: "ConfigMap", Name: g.configMap.Name, UID: g.configMap.UID, Controller: ptr.To(true),
		})
	})
	g.change(ctx, t, func(md *clusterv1.MachineDeployment) {
		allow(0, 1)(md)
		for label, value := range follows {
			metav1.SetMetaDataLabel(&md.ObjectMeta, label, value)
		}
	})
	foreign := g.is(ctx, t, refitv1.TargetForeign, firstGolden, 0)
	require.Contains(t, foreign.Message, "is controlled by ConfigMap "+g.configMap.Name)
	require.Equal(t, g.own, foreign.Template)

	g.changeOwners(ctx, t, func(owners []metav1.OwnerReference) []metav1.OwnerReference {
		return slices.DeleteFunc(owners, func(o metav1.OwnerReference) bool { return o.Kind == "ConfigMap" })
	})
	g.change(ctx, t, allow(0, 2)) // a template is looked at once a minute, and when its MachineDeployment changes
	refused := g.is(ctx, t, refitv1.TargetRefused, firstGolden, 0)
	require.Contains(t, refused.Message, "nothing was committed, since Cluster API would replace machines: where no machine may be unavailable")
	g.told(ctx, t, "BootImageRefused", g.policy.Name)
	require.Equal(t, g.own, g.refersTo(ctx, t))
}

// setBack has the MachineDeployment refer to the template of people again and again, until refit gives way. made is the one that refit
// brings it to.
func (g *golden) setBack(ctx context.Context, t *testing.T, made string) {
	t.Helper()
	for times := range int32(2) {
		g.refer(ctx, t, g.own)
		require.Equal(t, made, g.rotated(ctx, t, firstGolden, times+2), "it is the same template again")
	}
	g.refer(ctx, t, g.own)
	stopped := g.is(ctx, t, refitv1.TargetStopped, firstGolden, 3)
	require.Equal(t, g.own, stopped.Template)
	require.Contains(t, stopped.Message, "it was brought to this image 3 times")
	g.told(ctx, t, "BootImageStopped", g.policy.Name)
	require.Equal(t, g.own, g.refersTo(ctx, t))
}

// movesOn has another image be golden, and older ones be too old. With that, what was stopped goes on. It returns the template that
// refit made for it.
func (g *golden) movesOn(ctx context.Context, t *testing.T, version, image string) string {
	t.Helper()
	before := g.configMap.DeepCopy()
	g.configMap.Data = g.streams(t, image)
	require.NoError(t, g.Client.Patch(ctx, g.configMap, client.MergeFrom(before)))
	// The ConfigMap alone is read once a minute, and with the policy at once.
	g.changePolicy(ctx, t, func(s *refitv1.BootImagePolicySpec) { s.MinimumVersion = version })
	return g.rotated(ctx, t, image, 1)
}

// rotated waits until refit has brought the MachineDeployment to an image the given number of times, and Cluster API its machines,
// in place. It returns the template that refit made.
func (g *golden) rotated(ctx context.Context, t *testing.T, image string, times int32) string {
	t.Helper()
	target := g.is(ctx, t, refitv1.TargetRotated, image, times)
	require.Equal(t, target.Template, g.refersTo(ctx, t))
	g.checkMade(ctx, t, target.Template, image)
	g.stay(ctx, t, image)
	asked := g.onlyAsked(ctx, t, g.machines, g.booted)
	if times == 1 { // later it may be the same again
		for name, digest := range asked {
			require.NotEqual(t, g.asked[name], digest, "Cluster API has asked refit for %s again", name)
		}
	}
	g.asked = asked
	return target.Template
}

// stay waits until the machines name an image and Cluster API is done, and demands that they are those that there were.
func (g *golden) stay(ctx context.Context, t *testing.T, image string) {
	t.Helper()
	require.Equal(t, g.machines, g.rolledOutWith(ctx, t, g.provider, g.deployment.Name, image), "every machine was kept")
	var last []string
	require.NoError(t, poll(ctx, 200*time.Millisecond, func(ctx context.Context) (bool, error) {
		var sets clusterv1.MachineSetList
		err := g.Client.List(ctx, &sets, client.InNamespace(g.deployment.Namespace),
			client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: g.deployment.Name})
		last = nil
		for _, ms := range sets.Items {
			last = append(last, ms.Name)
		}
		return len(last) == 1, err
	}), "the MachineSets %v do not come to be one", &last)
}

// checkMade demands that a template is a copy of that of people, with an image in it, and refit's.
func (g *golden) checkMade(ctx context.Context, t *testing.T, name, image string) {
	t.Helper()
	made := g.template(ctx, t, name)
	require.Regexp(t, "^"+g.own+"-[0-9a-f]{10}$", name)
	require.Contains(t, made.GetLabels(), refitv1.BootImageTemplateLabel)
	require.Equal(t, g.policy.Name, made.GetAnnotations()[refitv1.BootImagePolicyAnnotation])
	require.Equal(t, g.own, made.GetAnnotations()[refitv1.BootImageBaseAnnotation])
	owners := made.GetOwnerReferences()
	require.Len(t, owners, 1)
	require.Equal(t, []string{"Cluster", g.Cluster.Name}, []string{owners[0].Kind, owners[0].Name}, "clusterctl takes it along")
	sum := sha256.Sum256([]byte(image))
	require.Equal(t, map[string]any{"template": map[string]any{"spec": map[string]any{"image": map[string]any{
		"url": image, "checksum": hex.EncodeToString(sum[:]), "checksumType": "sha256", "diskFormat": "qcow2",
	}}}}, made.Object["spec"])
}

// optsOut takes the rotation away: all stays as it is, and what somebody sets then stays too.
func (g *golden) optsOut(ctx context.Context, t *testing.T, template string, templates []string) {
	t.Helper()
	g.changePolicy(ctx, t, func(s *refitv1.BootImagePolicySpec) { s.Rotation = nil })
	var images []string // that the machines name, or have named, with the newest last
	g.await(ctx, t, "out", func(p *refitv1.BootImagePolicy) bool {
		images = nil
		for _, r := range slices.Backward(p.Status.History) {
			if r.Kind == metalMachine {
				images = append(images, r.Image)
			}
		}
		return p.Status.Rotation == nil && meta.FindStatusCondition(p.Status.Conditions, refitv1.RotationUpToDateCondition) == nil &&
			p.Status.ObservedGeneration == p.Generation && len(images) > 1
	})
	require.Contains(t, images[len(images)-1], "image.url="+thirdGolden, "%v", images)
	require.Contains(t, images[len(images)-2], "image.url="+secondGolden, "%v", images)
	require.Equal(t, template, g.refersTo(ctx, t))
	require.ElementsMatch(t, templates, g.templates(ctx, t))

	g.refer(ctx, t, g.own)
	g.stay(ctx, t, g.image)
	require.Equal(t, g.own, g.refersTo(ctx, t))
	require.ElementsMatch(t, templates, g.templates(ctx, t))
	for _, name := range templates {
		require.EqualValues(t, 1, g.template(ctx, t, name).GetGeneration(), "template %s was changed", name)
	}
}

// is waits until the policy says that its only target is in a state, and was brought to an image the given number of times, and demands
// that the condition says so too.
func (g *golden) is(ctx context.Context, t *testing.T, state refitv1.BootImageTargetState, image string, times int32) refitv1.BootImageTarget {
	t.Helper()
	var target refitv1.BootImageTarget
	p := g.await(ctx, t, string(state), func(p *refitv1.BootImagePolicy) bool {
		r := p.Status.Rotation
		if r == nil || r.ObservedGeneration != p.Generation || len(r.Targets) != 1 {
			return false
		}
		target = r.Targets[0]
		return target.State == state && target.Image == image && target.Times == times
	})
	require.Equal(t, []string{"MachineDeployment", g.deployment.Name}, []string{target.Kind, target.Name})
	condition := meta.FindStatusCondition(p.Status.Conditions, refitv1.RotationUpToDateCondition)
	require.NotNil(t, condition)
	if state == refitv1.TargetRotated {
		require.Equal(t, metav1.ConditionTrue, condition.Status)
		require.Equal(t, []int32{1, 1}, []int32{*p.Status.Rotation.Selected, *p.Status.Rotation.UpToDate})
		return target
	}
	require.Equal(t, metav1.ConditionFalse, condition.Status)
	require.Equal(t, string(state), condition.Reason)
	require.Contains(t, condition.Message, target.Message)
	require.Equal(t, []int32{1, 0}, []int32{*p.Status.Rotation.Selected, *p.Status.Rotation.UpToDate})
	return target
}

// await waits until the policy is as ok says.
func (g *golden) await(ctx context.Context, t *testing.T, what string, ok func(*refitv1.BootImagePolicy) bool) *refitv1.BootImagePolicy {
	t.Helper()
	p := &refitv1.BootImagePolicy{}
	err := poll(ctx, 200*time.Millisecond, func(ctx context.Context) (bool, error) {
		p = &refitv1.BootImagePolicy{}
		err := g.Client.Get(ctx, g.policy, p)
		return err == nil && ok(p), err
	})
	status, unreadable := json.Marshal(p.Status)
	require.NoError(t, unreadable)
	require.NoError(t, err, "the rotation should be %s, and the policy says %s", what, status)
	return p
}
