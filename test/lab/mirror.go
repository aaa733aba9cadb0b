package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// mirrorEvery is how often nodes and pods are looked at.
	mirrorEvery = 500 * time.Millisecond
	// mirrorOwner owns the fields of a node that come from the mirrored one.
	mirrorOwner = client.FieldOwner("refit-lab-mirror")
)

// A mirror makes the nodes of one API server appear in another one: their names, labels, provider IDs and reported status. All else
// that a node has there is somebody else's and stays: cordons, taints, annotations, further labels and conditions.
//
// Nodes are written when they have changed where they come from, or are missing where they go to; one that was deleted there
// comes back with another uid, as if it had been registered again. Only nodes that were mirrored are deleted.
type mirror struct {
	from, to client.Client
	kubelet  fakeKubelet
	// mirrored has the resourceVersion at which each node was written last.
	mirrored map[string]string
}

func newMirror(from, to client.Client) *mirror {
	return &mirror{from: from, to: to, kubelet: fakeKubelet{to}, mirrored: map[string]string{}}
}

// run mirrors until ctx ends. Of errors only changes are told.
func (m *mirror) run(ctx context.Context, tell func(error)) {
	ticker := time.NewTicker(mirrorEvery)
	defer ticker.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		switch err := m.sync(ctx); {
		case err == nil:
			last = ""
		case ctx.Err() == nil && err.Error() != last:
			last = err.Error()
			tell(err)
		}
	}
}

// sync looks once. The pods on the nodes are part of it.
func (m *mirror) sync(ctx context.Context) error {
	var want, have corev1.NodeList
	if err := m.from.List(ctx, &want); err != nil {
		return fmt.Errorf("listing the nodes to mirror: %w", err)
	}
	if err := m.to.List(ctx, &have); err != nil {
		return fmt.Errorf("listing the mirrored nodes: %w", err)
	}
	present := map[string]bool{}
	for _, n := range have.Items {
		present[n.Name] = true
	}
	var errs []error
	gone := maps.Clone(m.mirrored)
	for _, n := range want.Items {
		delete(gone, n.Name)
		if present[n.Name] && m.mirrored[n.Name] == n.ResourceVersion {
			continue
		}
		if err := m.write(ctx, &n); err != nil {
			errs = append(errs, err)
			continue
		}
		m.mirrored[n.Name] = n.ResourceVersion
	}
	for name := range gone {
		errs = append(errs, m.remove(ctx, name))
	}
	errs = append(errs, m.kubelet.sync(ctx, slices.Collect(maps.Keys(m.mirrored))))
	return errors.Join(errs...)
}

func (m *mirror) write(ctx context.Context, n *corev1.Node) error {
	image, err := reflection(n)
	if err != nil {
		return err
	}
	// Each call takes what the API server answers into what it was given.
	if err := m.to.Apply(ctx, client.ApplyConfigurationFromUnstructured(image.DeepCopy()), mirrorOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("mirroring node %s: %w", n.Name, err)
	}
	if err := m.to.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(image), mirrorOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("mirroring the status of node %s: %w", n.Name, err)
	}
	return nil
}

func (m *mirror) remove(ctx context.Context, name string) error {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := m.to.Delete(ctx, n); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting mirrored node %s: %w", name, err)
	}
	delete(m.mirrored, name)
	return nil
}

// reflection returns the part of a node that is mirrored.
func reflection(n *corev1.Node) (*unstructured.Unstructured, error) {
	part := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels},
		Spec:       corev1.NodeSpec{ProviderID: n.Spec.ProviderID},
		Status: corev1.NodeStatus{
			Conditions: n.Status.Conditions, Addresses: n.Status.Addresses, NodeInfo: n.Status.NodeInfo,
		},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(part)
	if err != nil {
		return nil, fmt.Errorf("mirroring node %s: %w", n.Name, err)
	}
	image := &unstructured.Unstructured{Object: content}
	image.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	unstructured.RemoveNestedField(content, "status", "daemonEndpoints")
	return image, nil
}

// A fakeKubelet stands in for the kubelets of nodes that exist in an API server only. Pods that are bound to one run at once,
// and those that are to end have ended.
type fakeKubelet struct {
	client client.Client
}

func (k fakeKubelet) sync(ctx context.Context, nodes []string) error {
	var pods corev1.PodList
	if err := k.client.List(ctx, &pods); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	var errs []error
	for _, pod := range pods.Items {
		if !slices.Contains(nodes, pod.Spec.NodeName) {
			continue
		}
		var err error
		switch {
		case !pod.DeletionTimestamp.IsZero():
			err = k.client.Delete(ctx, &pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
		case pod.Status.Phase == "" || pod.Status.Phase == corev1.PodPending:
			pod.Status.Phase = corev1.PodRunning
			pod.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
			}
			err = k.client.Status().Update(ctx, &pod)
		}
		// Who was faster has changed what this was about.
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("acting on pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	return errors.Join(errs...)
}
