package lease

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// NodeMaintenanceGVK is the node-maintenance-operator's. Its lease lapses while the object says that maintenance goes on.
var NodeMaintenanceGVK = schema.GroupVersionKind{Group: "nodemaintenance.medik8s.io", Version: "v1beta1", Kind: "NodeMaintenance"}

func (l *Locker) nodeMaintenances(ctx context.Context, node string) ([]Hold, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(NodeMaintenanceGVK.GroupVersion().WithKind(NodeMaintenanceGVK.Kind + "List"))
	switch err := l.Client.List(ctx, list); {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return nil, nil // the operator is not there
	case err != nil:
		return nil, fmt.Errorf("list NodeMaintenances: %w", err)
	}
	var holds []Hold
	for _, nm := range list.Items {
		name, _, err := unstructured.NestedString(nm.Object, "spec", "nodeName")
		if err != nil {
			return nil, fmt.Errorf("read NodeMaintenance %s: %w", nm.GetName(), err)
		}
		if name != node {
			continue
		}
		reason, _, _ := unstructured.NestedString(nm.Object, "spec", "reason") // for people only
		holds = append(holds, Hold{
			Kind: NodeMaintenance, What: "node " + node, Holder: "NodeMaintenance " + nm.GetName(), Since: nm.GetCreationTimestamp().Time,
			Reason: reason, Release: "release it with: kubectl delete nodemaintenance " + nm.GetName(),
		})
	}
	return holds, nil
}

// kubeNodeMaintenance looks at KEP-1411's lease of the node. It lapses as the node lease does.
func (l *Locker) kubeNodeMaintenance(ctx context.Context, node string) ([]Hold, error) {
	key := types.NamespacedName{Namespace: "kube-node-maintenance", Name: node}
	lease := &coordinationv1.Lease{}
	switch err := l.Client.Get(ctx, key, lease); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read Lease %s: %w", key, err)
	}
	hold := l.blocked(lease, "")
	if hold == nil {
		return nil, nil
	}
	hold.Kind, hold.What = KubeNodeMaintenance, "maintenance lease of node "+node
	return []Hold{*hold}, nil
}

const kuredAnnotation = "weave.works/kured-node-lock"

// kuredLock is the value of kured's annotation: one lock, or with more than one at a time the locks.
type kuredLock struct {
	NodeID  string        `json:"nodeID"`
	Created time.Time     `json:"created"`
	TTL     time.Duration `json:"TTL"`
	Locks   []kuredLock   `json:"locks"`
}

// kured looks at kured's lock, which is an annotation on its DaemonSet.
func (l *Locker) kured(ctx context.Context, node string) ([]Hold, error) {
	key := types.NamespacedName{Namespace: "kube-system", Name: "kured"}
	ds := &metav1.PartialObjectMetadata{}
	ds.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"})
	switch err := l.Client.Get(ctx, key, ds); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read DaemonSet %s: %w", key, err)
	}
	value, ok := ds.Annotations[kuredAnnotation]
	if !ok {
		return nil, nil
	}
	h := Hold{
		Kind: Kured, What: "node " + node, Holder: "kured",
		Release: fmt.Sprintf("it is released when kured has rebooted the node, or with: kubectl annotate daemonset -n %s %s %s-", key.Namespace, key.Name, kuredAnnotation),
	}
	var lock kuredLock
	if err := json.Unmarshal([]byte(value), &lock); err != nil {
		h.Reason = "whose lock can't be read: " + err.Error()
		return []Hold{h}, nil
	}
	for _, one := range append(lock.Locks, lock) {
		if one.NodeID == node && !one.over(l.Clock.Now()) {
			h.Since = one.Created
			return []Hold{h}, nil
		}
	}
	return nil, nil
}

// over reports whether kured takes the lock as expired on every clock that may be relied on here. Without a TTL it never does.
func (k kuredLock) over(now time.Time) bool {
	return k.TTL > 0 && !k.Created.IsZero() && now.Sub(k.Created) > k.TTL+k.TTL/10+Tolerance
}
