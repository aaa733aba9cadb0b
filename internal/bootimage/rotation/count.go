package rotation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinedeployments,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=kubeadmcontrolplanes,verbs=get;list;patch

// maxTimes is how often a target is brought to the same image before it is left to whoever sets it back.
const maxTimes = 3

// inputsOf is a digest of what people decide: the policy and the ConfigMap.
func inputsOf(uid types.UID, generation int64, data map[string]string) string {
	return digestOf(uid, generation, data)
}

// digestOf is a digest of text, numbers, times and what is made of them.
func digestOf(values ...any) string {
	canonical, err := json.Marshal(values)
	if err != nil {
		panic(fmt.Errorf("text, numbers and times: %w", err))
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:16])
}

// record is what is written on a target when it is brought to an image: the value of BootImageRotatedAnnotation.
type record struct {
	Policy string `json:"policy"`
	Inputs string `json:"inputs"`
	Image  string `json:"image"`
	Times  int32  `json:"times"`
}

// times is how often the target was brought to the image by the same inputs. The record on the target is written together with
// the change; whoever sets the target back may put it back too, and so what the status says counts as well.
func (p *pass) times(t *target, image string) int32 {
	var r record
	var n int32
	if text := t.object.GetAnnotations()[refitv1.BootImageRotatedAnnotation]; text != "" {
		// One that can't be read is as good as one that somebody took away.
		if json.Unmarshal([]byte(text), &r) == nil && r.Policy == p.policy.Name && r.Inputs == p.inputs && r.Image == image {
			n = r.Times
		}
	}
	if p.before.Inputs == p.inputs {
		for _, one := range p.before.Targets {
			if one.Kind == t.gvk.Kind && one.Name == t.object.GetName() && one.Image == image {
				n = max(n, one.Times)
			}
		}
	}
	return n
}

// repoint has the target refer to another template, and counts. It fails with a conflict if the target has changed since it was
// read: what was judged is then not what would be changed.
func (p *pass) repoint(ctx context.Context, t *target, template, image string, times int32) error {
	text, err := json.Marshal(record{Policy: p.policy.Name, Inputs: p.inputs, Image: image, Times: times})
	if err != nil {
		return fmt.Errorf("write the record of %s: %w", t, err)
	}
	changed := t.object.DeepCopy()
	path := append(append([]string{}, t.machine...), "spec", "infrastructureRef", "name")
	if err := unstructured.SetNestedField(changed.Object, template, path...); err != nil {
		return fmt.Errorf("set the template of %s: %w", t, err)
	}
	annotations := changed.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[refitv1.BootImageRotatedAnnotation] = string(text)
	changed.SetAnnotations(annotations)
	err = p.Client.Patch(ctx, changed, client.MergeFromWithOptions(t.object, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return err
	}
	if err != nil {
		return refusal(err, fmt.Sprintf("have %s refer to the template %s", t, template))
	}
	return nil
}
