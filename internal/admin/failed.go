package admin

import (
	"context"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// Failures lets people decide about updates that have failed.
type Failures struct {
	Client client.Client
	Clock  clock.PassiveClock
	Out    io.Writer
	// Admin is who decides.
	Admin string
}

// Retry has the failed update of a Machine tried again.
func (f *Failures) Retry(ctx context.Context, m *clusterv1.Machine) error {
	if err := f.annotate(ctx, m, "retried", refitv1.RetryAnnotation, refitv1.AbandonAnnotation); err != nil {
		return err
	}
	return f.say("The update of Machine %[1]s/%[2]s is tried again: refit plans anew, and waits for window, slot and lease as for any update.\n"+
		"See how it goes with: refit status -n %[1]s %[2]s --watch\n", m.Namespace, m.Name)
}

// Abandon gives the failed update of a Machine up.
func (f *Failures) Abandon(ctx context.Context, m *clusterv1.Machine) error {
	if err := f.annotate(ctx, m, "abandoned", refitv1.AbandonAnnotation, refitv1.RetryAnnotation); err != nil {
		return err
	}
	return f.say("The update of Machine %[1]s/%[2]s is given up: refit lets go of its slot and takes away what it has put on the node, its cordon included, "+
		"so that other machines can be updated. The files there stay as they are.\nIt is updated again when the specs change, or with: refit retry -n %[1]s %[2]s\n", m.Namespace, m.Name)
}

func (f *Failures) say(format string, args ...any) error {
	_, err := fmt.Fprintf(f.Out, format, args...)
	return err
}

// annotate sets an annotation on a MachineUpdate to a value that it did not have before, if it has failed and nobody else writes
// it. The other annotation goes: asked for and not acted upon yet, it would be about the failure after this one.
func (f *Failures) annotate(ctx context.Context, m *clusterv1.Machine, done, annotation, other string) error {
	key := client.ObjectKeyFromObject(m)
	var mu refitv1.MachineUpdate
	switch err := f.Client.Get(ctx, key, &mu); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no update of Machine %s: refit was never asked to update it", key)
	case err != nil:
		return fmt.Errorf("read MachineUpdate %s: %w", key, err)
	}
	if !metav1.IsControlledBy(&mu, m) {
		return fmt.Errorf("MachineUpdate %s is of an earlier Machine of the same name, and about to go", key)
	}
	if r := rowOf(&mu, f.Clock.Now()); r.Phase != string(refitv1.PhaseFailed) {
		return fmt.Errorf("the update of Machine %s can't be %s: only one that has failed can, and it is %s%s", key, done, r.Phase, inBrackets(r.Reason))
	}
	changed := mu.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, annotation, f.Clock.Now().UTC().Format(time.RFC3339Nano)+" "+f.Admin)
	delete(changed.Annotations, other)
	err := f.Client.Patch(ctx, changed, client.MergeFromWithOptions(&mu, client.MergeFromWithOptimisticLock{}), client.FieldOwner(f.Admin))
	if apierrors.IsConflict(err) {
		return fmt.Errorf("MachineUpdate %s has changed at this moment; look at it with `refit status`, and run the command again if you still want to: %w", key, err)
	}
	if err != nil {
		return fmt.Errorf("annotate MachineUpdate %s: %w", key, err)
	}
	return nil
}

func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}
