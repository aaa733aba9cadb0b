package drain

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// evictionsAtOnce is how many evictions are asked for at the same time. The API server may let one wait.
	evictionsAtOnce = 8
	// evictionTime is for how long a round begins with evictions, as Cluster API's does, and how long one may take. What is left
	// has its turn in the next round.
	evictionTime = 10 * time.Second
)

// evict asks for the evictions of pods, and notes at each what came of it. It returns an error when the API server can't be
// asked.
func (d *Drainer) evict(ctx context.Context, pods []*leaver, opts metav1.DeleteOptions) error {
	begin, cancel := context.WithTimeout(ctx, evictionTime)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(evictionsAtOnce)
	for _, l := range pods {
		group.Go(func() error {
			if begin.Err() != nil {
				return ctx.Err()
			}
			return d.evictOne(ctx, l, opts)
		})
	}
	return group.Wait()
}

// evictOne evicts this very pod: one of the same name, such as a StatefulSet's next, may run elsewhere already. That
// kubectl's library can't be told.
func (d *Drainer) evictOne(ctx context.Context, l *leaver, opts metav1.DeleteOptions) error {
	within, cancel := context.WithTimeout(ctx, evictionTime)
	defer cancel()
	opts.Preconditions = metav1.NewUIDPreconditions(string(l.pod.UID))
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: l.pod.Namespace, Name: l.pod.Name},
		DeleteOptions: &opts,
	}
	err := d.Clientset.PolicyV1().Evictions(l.pod.Namespace).Evict(within, eviction)
	switch {
	case err == nil:
		l.evicted = len(opts.DryRun) == 0
		return nil
	case within.Err() != nil && ctx.Err() == nil:
		return nil // the next round asks again
	}
	l.blocked, err = refusal(err)
	if err != nil {
		return fmt.Errorf("evict pod %s: %w", l, err)
	}
	return nil
}

// refusal returns why the API server did not evict a pod. It is "" when the next round knows more, and an error when there was
// no answer.
func refusal(err error) (string, error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "", err
	}
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok {
		return budget(cause.Message), nil
	}
	switch {
	case apierrors.IsUnauthorized(err), apierrors.IsServiceUnavailable(err):
		return "", err
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return "", nil // it is gone, or another one has its name: whether that is so, the next round reads
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return "", nil
	case apierrors.IsTooManyRequests(err):
		return "the API server has too many requests; it is asked again", nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return "its namespace is being deleted, which lets nothing be evicted and deletes the pod itself", nil
	default:
		return "it can't be evicted: " + status.Status().Message, nil
	}
}

// budgetMessage is how the API server begins the message of a PodDisruptionBudget that refuses.
var budgetMessage = regexp.MustCompile(`^The disruption budget (\S+) (.*)$`)

// budget returns which PodDisruptionBudget blocks. Counts of pods are left out: they change, and the reader finds them there.
func budget(message string) string {
	parts := budgetMessage.FindStringSubmatch(message)
	if parts == nil {
		return "a PodDisruptionBudget allows no disruption now: " + message
	}
	text := fmt.Sprintf("its PodDisruptionBudget %s allows no disruption now", parts[1])
	if strings.HasPrefix(parts[2], "needs ") || parts[2] == "does not allow evicting pods currently" {
		return text
	}
	return text + ": it " + parts[2]
}
