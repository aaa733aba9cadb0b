package rotation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// The kinds of the table of images, and no others. A kind that spec.kinds of a policy adds needs a role of its own.
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=awsmachinetemplates;azuremachinetemplates;devmachinetemplates;dockermachinetemplates;gcpmachinetemplates;hcloudmachinetemplates;hetznerbaremetalmachinetemplates;ibmpowervsmachinetemplates;ibmvpcmachinetemplates;kubevirtmachinetemplates;metal3machinetemplates;nutanixmachinetemplates;openstackmachinetemplates;proxmoxmachinetemplates;vspheremachinetemplates,verbs=create;get;list;delete

// refusedError is what the API server, or a rule of refit, does not let be done. It is for people to settle, and not tried again
// in haste.
type refusedError struct{ message string }

func (e *refusedError) Error() string { return e.message }

func refused(format string, args ...any) error {
	return &refusedError{message: fmt.Sprintf(format, args...)}
}

// refusal turns an answer of the API server that is a no into a refusedError. Other errors pass, and are tried again.
func refusal(err error, doing string) error {
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err) {
		return refused("the API server does not let refit %s: %v", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// machineSpec is the machine's spec in a template.
func machineSpec(template *unstructured.Unstructured) (map[string]any, error) {
	spec, found, err := unstructured.NestedFieldNoCopy(template.Object, "spec", "template", "spec")
	out, ok := spec.(map[string]any)
	if err != nil || !found || !ok {
		return nil, refused("%s %s has no spec.template.spec, where refit looks for the image", template.GetKind(), template.GetName())
	}
	return out, nil
}

// golden returns a template with the image in it, and whether it differs from what there is.
func golden(template *unstructured.Unstructured, fields []refitv1.BootImageField, image Golden) (*unstructured.Unstructured, bool, error) {
	wanted := template.DeepCopy()
	spec, err := machineSpec(wanted)
	if err != nil {
		return nil, false, err
	}
	if err := bring(spec, fields, image); err != nil {
		return nil, false, refused("%s %s can't have the golden image: %v", template.GetKind(), template.GetName(), err)
	}
	return wanted, !reflect.DeepEqual(template.Object["spec"], wanted.Object["spec"]), nil
}

// hashLength is how much of the digest of its spec is in the name of a template.
const hashLength = 10

var hashSuffix = regexp.MustCompile(`^[0-9a-f]{10}$`)

// nameFor is the name of a template that descends from one of the name base: the same for the same spec, so that a template that
// was made is found again.
func nameFor(base string, spec any) (string, error) {
	canonical, err := json.Marshal(spec) // sorts the keys of mappings
	if err != nil {
		return "", fmt.Errorf("digest the spec of a template: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return stem(base) + hex.EncodeToString(sum[:])[:hashLength], nil
}

// stem is what the names of all templates begin with that descend from one. An API server takes names of 253 characters.
func stem(base string) string {
	const longest = 253 - hashLength - 1
	if len(base) > longest {
		base = strings.TrimRight(base[:longest], "-.")
	}
	return base + "-"
}

// baseOf is the name of the template from which one descends that refit made, and whether refit did. A copy of such a template that
// somebody gave another name is not refit's.
func baseOf(o metav1.Object) (base string, ours bool) {
	if _, labelled := o.GetLabels()[refitv1.BootImageTemplateLabel]; !labelled {
		return o.GetName(), false
	}
	base = o.GetAnnotations()[refitv1.BootImageBaseAnnotation]
	hash, found := strings.CutPrefix(o.GetName(), stem(base))
	if base == "" || !found || !hashSuffix.MatchString(hash) {
		return o.GetName(), false
	}
	return base, true
}

// tracking are labels and annotations by which tools know what they have made, and may delete it when they no longer find it in
// their source. The copy of a template is not theirs.
var tracking = []string{
	"kubectl.kubernetes.io/", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "argocd.argoproj.io/", "meta.helm.sh/",
	"kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/", "config.k8s.io/", "config.kubernetes.io/", "objectset.rio.cattle.io/",
	"applyset.kubernetes.io/", clusterv1.TemplateClonedFromNameAnnotation, clusterv1.TemplateClonedFromGroupKindAnnotation,
}

func untracked(all map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, all)
	maps.DeleteFunc(out, func(key, _ string) bool {
		return slices.ContainsFunc(tracking, func(t string) bool { return strings.HasPrefix(key, t) })
	})
	return out
}

// successor returns the template to make out of one and the spec that is wanted instead.
func (p *pass) successor(t *target, of, wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	base, _ := baseOf(of)
	name, err := nameFor(base, wanted.Object["spec"])
	if err != nil {
		return nil, err
	}
	labels, annotations := untracked(of.GetLabels()), untracked(of.GetAnnotations())
	labels[refitv1.BootImageTemplateLabel] = ""
	annotations[refitv1.BootImagePolicyAnnotation] = p.policy.Name
	annotations[refitv1.BootImageBaseAnnotation] = base
	out := &unstructured.Unstructured{Object: map[string]any{"spec": wanted.DeepCopy().Object["spec"]}}
	out.SetGroupVersionKind(of.GroupVersionKind())
	out.SetNamespace(of.GetNamespace())
	out.SetName(name)
	out.SetLabels(labels)
	out.SetAnnotations(annotations)
	// As Cluster API owns templates: by it clusterctl knows what to move with a Cluster.
	out.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: t.cluster.Name, UID: t.cluster.UID,
	}})
	return out, nil
}

// ensure makes a template that is not there yet. Nothing is made before the API server has shown, in a dry run, that it would
// be what is wanted: fields that it adds would be a reason to replace machines.
func (p *pass) ensure(ctx context.Context, wanted *unstructured.Unstructured) error {
	what := wanted.GetKind() + " " + wanted.GetName()
	there := &unstructured.Unstructured{}
	there.SetGroupVersionKind(wanted.GroupVersionKind())
	err := p.Live.Get(ctx, client.ObjectKeyFromObject(wanted), there)
	if err == nil {
		return checkThere(there, wanted)
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("read %s: %w", what, err)
	}
	tried := wanted.DeepCopy()
	if err := p.Client.Create(ctx, tried, client.DryRunAll); err != nil {
		return refusal(err, "make "+what)
	}
	if !reflect.DeepEqual(tried.Object["spec"], wanted.Object["spec"]) {
		return refused("the API server would add to the spec of %s, which would be a reason to replace machines; let a template that has "+
			"these fields already come first", what)
	}
	if err := p.Client.Create(ctx, wanted.DeepCopy()); err != nil {
		return refusal(err, "make "+what)
	}
	return nil
}

// checkThere says why a template that has the name of the wanted one is not it.
func checkThere(there, wanted *unstructured.Unstructured) error {
	what := there.GetKind() + " " + there.GetName()
	_, ours := baseOf(there)
	switch {
	case !ours:
		return refused("there is a %s that refit did not make, and that has the name of the one to make; rename or delete it", what)
	case !there.GetDeletionTimestamp().IsZero():
		return refused("%s, which has the golden image, is being deleted; refit makes it again when it is gone", what)
	case !reflect.DeepEqual(there.Object["spec"], wanted.Object["spec"]):
		return refused("%s, which refit made, has another spec than it had; if nothing refers to it, delete it", what)
	}
	return nil
}
