package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	kubectldrain "k8s.io/kubectl/pkg/drain"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// leaver is a pod that is to leave.
type leaver struct {
	pod *corev1.Pod
	manner
	// evicted reports that it was in this round.
	evicted bool
	// blocked is why it could not be evicted in this round.
	blocked string
}

func (l *leaver) terminating() bool { return l.evicted || !l.pod.DeletionTimestamp.IsZero() }

func (l *leaver) String() string { return l.pod.Namespace + "/" + l.pod.Name }

// pods returns the pods that are to leave the Node, by namespace and name.
func (d *Drainer) pods(ctx context.Context, machine *clusterv1.Machine, node *corev1.Node) ([]leaver, error) {
	helper := &kubectldrain.Helper{
		Ctx: ctx, Client: d.Clientset, ChunkSize: pageSize,
		Force: true, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true, // as Cluster API
	}
	list, errs := helper.GetPodsForDeletion(node.Name)
	if len(errs) > 0 {
		return nil, fmt.Errorf("choose its pods: %w", errors.Join(errs...))
	}
	rules, err := d.rules(ctx, machine)
	if err != nil {
		return nil, err
	}
	j := &judge{rules: rules, client: d.Client, namespaces: map[string]labels.Set{}}
	var pods []leaver
	for _, pod := range list.Pods() {
		if finished(&pod) || unreachable(node) && d.forgotten(&pod) {
			continue
		}
		m, err := j.manner(ctx, &pod)
		if err != nil {
			return nil, err
		}
		if m.behavior != skips {
			pods = append(pods, leaver{pod: &pod, manner: m})
		}
	}
	slices.SortFunc(pods, func(a, b leaver) int {
		return cmp.Or(cmp.Compare(a.pod.Namespace, b.pod.Namespace), cmp.Compare(a.pod.Name, b.pod.Name))
	})
	return pods, nil
}

// finished reports whether nothing of the pod runs any more, and will not again.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// forgotten reports whether the pod should be gone, so that a node that is unreachable is not waited for.
func (d *Drainer) forgotten(pod *corev1.Pod) bool {
	at := pod.DeletionTimestamp
	return !at.IsZero() && d.Clock.Since(at.Time) > unreachableGraceSeconds*time.Second
}
