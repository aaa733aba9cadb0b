package guard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/rollout"
)

// edit is what somebody is about to make of an object.
type edit struct {
	old, new *unstructured.Unstructured
	user     string
	dryRun   bool
	// advice reports that nothing is refused: it is a controller's.
	advice bool
}

// kinds are those of which edits are looked at.
var kinds = []string{
	clusterv1.GroupVersion.WithKind("MachineDeployment").String(), clusterv1.GroupVersion.WithKind("Cluster").String(),
	controlplanev1.GroupVersion.WithKind("KubeadmControlPlane").String(),
}

// read reads the edit of a review.
func read(r admission.Request) (*edit, error) {
	e := &edit{old: &unstructured.Unstructured{}, new: &unstructured.Unstructured{}, user: r.UserInfo.Username, dryRun: r.DryRun != nil && *r.DryRun}
	for _, one := range []struct {
		raw  []byte
		into *unstructured.Unstructured
	}{{r.OldObject.Raw, e.old}, {r.Object.Raw, e.new}} {
		if err := one.into.UnmarshalJSON(one.raw); err != nil {
			return nil, fmt.Errorf("the object can't be read: %w", err)
		}
		if kind := one.into.GroupVersionKind().String(); !slices.Contains(kinds, kind) || one.into.GetNamespace() != r.Namespace || one.into.GetName() != r.Name {
			return nil, fmt.Errorf("the review is about %s/%s, and has an object %s/%s of kind %s, of which refit's guard has to know the version", r.Namespace, r.Name,
				one.into.GetNamespace(), one.into.GetName(), kind)
		}
	}
	if e.old.GetKind() != e.new.GetKind() {
		return nil, fmt.Errorf("a %s does not become a %s", e.old.GetKind(), e.new.GetKind())
	}
	return e, nil
}

func (e *edit) title() string {
	return fmt.Sprintf("%s %s/%s", e.new.GetKind(), e.new.GetNamespace(), e.new.GetName())
}

func (e *edit) deleted() bool { return !e.new.GetDeletionTimestamp().IsZero() }

// scales reports whether an edit changes no more of the spec than replicas.
func (e *edit) scales() bool {
	return reflect.DeepEqual(withoutReplicas(e.old.Object["spec"]), withoutReplicas(e.new.Object["spec"]))
}

// withoutReplicas returns decoded JSON without the replicas of owners, and of the parts of a topology.
func withoutReplicas(spec any) any {
	fields, _ := spec.(map[string]any)
	fields = runtime.DeepCopyJSON(fields)
	delete(fields, "replicas")
	unstructured.RemoveNestedField(fields, "topology", "controlPlane", "replicas")
	for _, workers := range []string{"machineDeployments", "machinePools"} {
		value, _, _ := unstructured.NestedFieldNoCopy(fields, "topology", "workers", workers)
		list, _ := value.([]any)
		for _, one := range list {
			if part, ok := one.(map[string]any); ok {
				delete(part, "replicas")
			}
		}
	}
	return fields
}

// quiet reports whether an edit has Cluster API roll nothing out, without a look at templates.
func (e *edit) quiet(ctx context.Context) (bool, error) {
	if e.new.GetKind() == "Cluster" {
		return e.old.Object["spec"] != nil && topologyOf(e.old) == nil && topologyOf(e.new) == nil, nil
	}
	if !reflect.DeepEqual(fieldOf(e.old, "spec", "rollout"), fieldOf(e.new, "spec", "rollout")) {
		return false, nil
	}
	same, err := rollout.SameMachines(ctx, e.old, e.new)
	if err != nil || !same {
		return false, err
	}
	reasons, err := rollout.InitReasons(ctx, e.old, e.new)
	return len(reasons) == 0, err
}

func topologyOf(o *unstructured.Unstructured) any { return fieldOf(o, "spec", "topology") }

func fieldOf(o *unstructured.Unstructured, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	return value
}

// digest identifies what an edit wants of an object, for a bypass, and what the object was when that was refused: its generation, which never comes again, and
// the bypass that it had, so that one is given in the edit itself. How many machines there are to be is no part of it.
func (e *edit) digest(generation int64) (string, error) {
	spec, err := json.Marshal(withoutReplicas(e.new.Object["spec"])) // in the order of its fields' names
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d %q %s", e.title(), e.old.GetUID(), generation, e.old.GetAnnotations()[refitv1.BypassAnnotation], spec))
	return hex.EncodeToString(sum[:8]), nil
}

// bypass returns the digest by which an edit is stored all the same, and whether the object, as it will be, has it. That of the generation before is as good:
// something may have scaled the object since. Who has used one, and has taken the edit back, is two generations on.
func (e *edit) bypass() (digest string, has bool, err error) {
	all := strings.Split(strings.ReplaceAll(e.new.GetAnnotations()[refitv1.BypassAnnotation], " ", ""), ",")
	now := e.old.GetGeneration()
	for _, generation := range []int64{now - 1, now} {
		if digest, err = e.digest(generation); err != nil || slices.Contains(all, digest) {
			return digest, err == nil, err
		}
	}
	return digest, false, nil
}
