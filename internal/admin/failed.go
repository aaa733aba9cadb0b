package admin

import (
	"context"
	"fmt"
	"io"

	"k8s.io/client-go/util/retry"
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
	d := decision{done: "retried", annotation: refitv1.RetryAnnotation, other: refitv1.AbandonAnnotation, which: "only one that has failed can", may: hasFailed}
	if err := f.annotate(ctx, m, d); err != nil {
		return err
	}
	return f.say("refit was asked to try the update of Machine %[1]s/%[2]s again: it plans again, and waits for window, slot and lease as for any update.\n"+
		"See how it goes with: refit status -n %[1]s %[2]s --watch\n", m.Namespace, m.Name)
}

// Abandon gives the failed update of a Machine up.
func (f *Failures) Abandon(ctx context.Context, m *clusterv1.Machine) error {
	d := decision{
		done: "abandoned", annotation: refitv1.AbandonAnnotation, other: refitv1.RetryAnnotation, may: (*refitv1.MachineUpdate).Abandonable,
		which: "only one that has failed can, and one that waits and keeps its node or its slot",
	}
	if err := f.annotate(ctx, m, d); err != nil {
		return err
	}
	return f.say("refit was asked to abandon the update of Machine %[1]s/%[2]s: it releases its slot and takes away what it has put on the node, its cordon included, "+
		"so that other machines can be updated. The files there stay as they are.\nSee whether it has: refit status -n %[1]s %[2]s\nThe Machine is updated again when the specs change, or with: refit retry -n %[1]s %[2]s\n", m.Namespace, m.Name)
}

func (f *Failures) say(format string, args ...any) error {
	return say(f.Out, format, args...)
}

// decision is what a person decides about an update.
type decision struct {
	// done is what is done to the update then.
	done string
	// annotation asks for it, and other for the other thing.
	annotation, other string
	// may says about which updates it is decided, and which does so for people.
	may   func(*refitv1.MachineUpdate) bool
	which string
}

func hasFailed(mu *refitv1.MachineUpdate) bool {
	return mu.Status.Phase == refitv1.PhaseFailed && mu.Status.ObservedDigest == mu.Spec.Digest
}

// annotate asks by an annotation for one thing, and no longer for the other one, if that may be decided.
func (f *Failures) annotate(ctx context.Context, m *clusterv1.Machine, d decision) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { return f.annotateOnce(ctx, m, d) }) // refit writes the status at the same time
}

func (f *Failures) annotateOnce(ctx context.Context, m *clusterv1.Machine, d decision) error {
	mu, err := updateOf(ctx, f.Client, m)
	if err != nil {
		return err
	}
	if !d.may(mu.Restored()) {
		r := rowOf(mu, f.Clock.Now())
		return fmt.Errorf("the update of Machine %s can't be %s: %s, and it is %s%s", client.ObjectKeyFromObject(m), d.done, d.which, r.Phase, inBrackets(r.Reason))
	}
	_, err = ask(ctx, f.Client, mu, f.Admin, f.Clock.Now(), d.annotation, d.other)
	return err
}

func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}
