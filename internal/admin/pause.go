package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

const (
	pauseReason = refitv1.RestrictiveUntilAnnotation + refitv1.OverrideReasonSuffix
	pauseBy     = refitv1.RestrictiveByAnnotation
)

// Pauses lets people stop changes of a Cluster or a Machine, and resume them.
type Pauses struct {
	Client client.Client
	Clock  clock.PassiveClock
	Out    io.Writer
	// Admin is who pauses or resumes.
	Admin string
}

// PauseOptions say why changes are stopped, and for how long.
type PauseOptions struct {
	Reason string
	// Until is when changes go on by themselves; zero: when they are resumed.
	Until time.Time
}

// Pause stops changes of a Cluster or a Machine: no update starts there. What has started ends.
func (p *Pauses) Pause(ctx context.Context, obj client.Object, o PauseOptions) error {
	if strings.TrimSpace(o.Reason) == "" {
		return errors.New("a pause needs a reason, for those who find it")
	}
	if !o.Until.IsZero() && !o.Until.After(p.Clock.Now()) {
		return fmt.Errorf("the pause would end at %s, which is over", o.Until.UTC().Format(time.RFC3339))
	}
	value := "true"
	if !o.Until.IsZero() {
		value = o.Until.UTC().Format(time.RFC3339)
	}
	err := p.write(ctx, obj, p.mine, func(annotations map[string]string) {
		annotations[refitv1.RestrictiveUntilAnnotation], annotations[pauseReason], annotations[pauseBy] = value, o.Reason, p.Admin
	})
	if err != nil {
		return err
	}
	return say(p.Out, "%s is paused by %s%s: no update starts there, and what has started ends.\n", named(obj), p.Admin, until(o.Until))
}

// Resume takes the stop of a Cluster or a Machine away. Another person's is taken away with force only.
func (p *Pauses) Resume(ctx context.Context, obj client.Object, force bool) error {
	if _, paused := obj.GetAnnotations()[refitv1.RestrictiveUntilAnnotation]; !paused {
		return say(p.Out, "%s is not paused.\n", named(obj))
	}
	mayResume := func(obj client.Object) error {
		if err := p.mine(obj); err != nil && !force {
			return fmt.Errorf("%w; --force resumes it nevertheless", err)
		}
		return nil
	}
	err := p.write(ctx, obj, mayResume, func(annotations map[string]string) {
		for _, name := range []string{refitv1.RestrictiveUntilAnnotation, pauseReason, pauseBy} {
			delete(annotations, name)
		}
	})
	if err != nil {
		return err
	}
	return say(p.Out, "%s is resumed: updates start as policies, and stops of other objects, allow.\n", named(obj))
}

// mine returns an error if changes are stopped by somebody else and not only until an instant that is over.
func (p *Pauses) mine(obj client.Object) error {
	annotations := obj.GetAnnotations()
	value, paused := annotations[refitv1.RestrictiveUntilAnnotation]
	by := annotations[pauseBy]
	if end, err := time.Parse(time.RFC3339, value); !paused || by == p.Admin || err == nil && !end.After(p.Clock.Now()) {
		return nil
	}
	if by == "" {
		by = "somebody who did not say who they are"
	}
	return fmt.Errorf("%s is paused by %s%s (%s=%s)", named(obj), by, inBrackets(annotations[pauseReason]), refitv1.RestrictiveUntilAnnotation, value)
}

// write changes annotations of an object, if they may be. What is the API server's is decided about: others write these objects all the time.
func (p *Pauses) write(ctx context.Context, obj client.Object, may func(client.Object) error, change func(annotations map[string]string)) error {
	err := onConflict(ctx, p.Client, obj, func() error {
		if err := may(obj); err != nil {
			return err
		}
		changed, ok := obj.DeepCopyObject().(client.Object)
		if !ok {
			return fmt.Errorf("%T is no object of the API", obj)
		}
		annotations := maps.Clone(obj.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		change(annotations)
		changed.SetAnnotations(annotations)
		err := p.Client.Patch(ctx, changed, client.MergeFromWithOptions(obj, client.MergeFromWithOptimisticLock{}), client.FieldOwner(p.Admin))
		if err != nil {
			return fmt.Errorf("annotate %s: %w", named(obj), err)
		}
		return nil
	})
	if apierrors.IsConflict(err) {
		return fmt.Errorf("%w; others change it all the time: run the command again", err)
	}
	return err
}

// named returns a Cluster or a Machine as people know it.
func named(obj metav1.Object) string {
	kind := "Machine"
	if _, ok := obj.(*clusterv1.Cluster); ok {
		kind = "Cluster"
	}
	return kind + " " + obj.GetNamespace() + "/" + obj.GetName()
}

// FindCluster returns the one Cluster of the name.
func FindCluster(ctx context.Context, c client.Reader, scope Scope) (*clusterv1.Cluster, error) {
	var list clusterv1.ClusterList
	if err := c.List(ctx, &list, client.InNamespace(scope.Namespace)); err != nil {
		return nil, fmt.Errorf("list Clusters: %w", err)
	}
	var found *clusterv1.Cluster
	for i := range list.Items {
		one := &list.Items[i]
		switch {
		case one.Name != scope.Cluster:
		case found != nil:
			return nil, fmt.Errorf("%q can be %s, or %s; say which with --namespace", scope.Cluster, named(found), named(one))
		default:
			found = one
		}
	}
	if found == nil {
		return nil, fmt.Errorf("there is no Cluster that is named %q in %s", scope.Cluster, Scope{Namespace: scope.Namespace})
	}
	return found, nil
}
