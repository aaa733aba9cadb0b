package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/annotations"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// HoldKind is the kind of a hold.
type HoldKind string

// The kinds of holds.
const (
	NodeLease           HoldKind = "NodeLease"
	Annotation          HoldKind = "Annotation"
	NodeMaintenance     HoldKind = "NodeMaintenance"
	NodeCondition       HoldKind = "NodeCondition"
	NodeTaint           HoldKind = "NodeTaint"
	KubeNodeMaintenance HoldKind = "KubeNodeMaintenance"
	Kured               HoldKind = "Kured"
	Paused              HoldKind = "Paused"
	Deleting            HoldKind = "Deleting"
)

// Hold is one thing that says that a node is somebody's, or is not to be touched.
type Hold struct {
	Kind HoldKind
	// What is held, such as "node lease".
	What string
	// Holder is who holds it, as far as that can be told.
	Holder string
	// Since when; zero when that can't be told.
	Since time.Time
	// Reason is why, in somebody's words.
	Reason string
	// Release is what releases it.
	Release string
}

// String returns the hold as people read it.
func (h Hold) String() string {
	text := fmt.Sprintf("%s held by %s", h.What, h.Holder)
	if !h.Since.IsZero() {
		text += " since " + h.Since.UTC().Format(time.RFC3339)
	}
	if h.Reason != "" {
		text += fmt.Sprintf(" (%s)", h.Reason)
	}
	return text + "; " + h.Release
}

// Survey is what was found of a node.
type Survey struct {
	Node *corev1.Node
	// Holds are all that were found; without one the node is free, but for its lease.
	Holds []Hold
	// Cordoned is no hold. It is to be said, and remembered: who has cordoned a node uncordons it.
	Cordoned bool
	// at is when the Node was read.
	at time.Time
}

// Holds looks for all that says that a Machine's node is somebody's, but for the node lease. uid is that of the Node if it is
// known. What can't be read is an error, and never free.
func (l *Locker) Holds(ctx context.Context, facts Facts, uid types.UID) (*Survey, error) {
	return l.survey(ctx, facts, uid, nil)
}

// survey does so. A Node that is nil is read.
func (l *Locker) survey(ctx context.Context, facts Facts, uid types.UID, node *corev1.Node) (*Survey, error) {
	if facts.Machine == nil || facts.Cluster == nil || facts.Machine.UID == "" {
		return nil, errors.New("holds can't be looked for without the Machine and its Cluster")
	}
	name := facts.Machine.Status.NodeRef.Name
	if name == "" {
		return nil, fmt.Errorf("%w: Machine %s", ErrNoNode, facts.Machine.Name)
	}
	now := l.Clock.Now()
	if node == nil || node.Name != name {
		var err error
		if node, err = l.node(ctx, name, uid); err != nil {
			return nil, err
		}
	}
	holds := managed(facts, now)
	holds = append(holds, deleting("Node", node)...)
	holds = append(holds, annotated("node", node, now)...)
	holds = append(holds, conditions(node)...)
	holds = append(holds, taints(node)...)
	for _, look := range []func(context.Context, string) ([]Hold, error){l.nodeMaintenances, l.kubeNodeMaintenance, l.kured} {
		more, err := look(ctx, name)
		if err != nil {
			return nil, err
		}
		holds = append(holds, more...)
	}
	return &Survey{Node: node, Holds: holds, Cordoned: node.Spec.Unschedulable, at: now}, nil
}

// node reads a Node.
func (l *Locker) node(ctx context.Context, name string, uid types.UID) (*corev1.Node, error) {
	node := &corev1.Node{}
	switch err := l.Client.Get(ctx, types.NamespacedName{Name: name}, node); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: %s", ErrNodeGone, name)
	case err != nil:
		return nil, fmt.Errorf("read Node %s: %w", name, err)
	case uid != "" && uid != node.UID:
		return nil, fmt.Errorf("%w: %s has uid %s, and had %s", ErrNodeReplaced, name, node.UID, uid)
	}
	return node, nil
}

// managed are the holds in the management cluster.
func managed(facts Facts, now time.Time) []Hold {
	var holds []Hold
	if annotations.IsPaused(facts.Cluster, facts.Machine) {
		holds = append(holds, Hold{
			Kind: Paused, What: "Machine " + facts.Machine.Name, Holder: "whoever has paused it or its Cluster",
			Release: "it is released when neither is paused any more",
		})
	}
	holds = append(holds, deleting("Cluster", facts.Cluster)...)
	holds = append(holds, deleting("Machine", facts.Machine)...)
	return append(holds, annotated("machine", facts.Machine, now)...)
}

func deleting(kind string, obj metav1.Object) []Hold {
	at := obj.GetDeletionTimestamp()
	if at.IsZero() {
		return nil
	}
	return []Hold{{
		Kind: Deleting, What: kind + " " + obj.GetName(), Holder: "whoever deletes it", Since: at.Time,
		Release: "nothing releases it, since it is about to go",
	}}
}

// annotated returns the hold of an annotation. resource is the object's for kubectl.
func annotated(resource string, obj metav1.Object, now time.Time) []Hold {
	hold, held := PersonsHoldOf(obj)
	if !held || hold.Over(now) {
		return nil
	}
	namespace := ""
	if obj.GetNamespace() != "" {
		namespace = " -n " + obj.GetNamespace()
	}
	h := Hold{
		Kind: Annotation, What: resource + " " + obj.GetName(), Reason: hold.Reason,
		Release: fmt.Sprintf("release it with: kubectl annotate %s%s %s %s-", resource, namespace, obj.GetName(), refitv1.HoldAnnotation),
	}
	h.Holder, h.Since = annotator(obj, refitv1.HoldAnnotation)
	value := obj.GetAnnotations()[refitv1.HoldAnnotation]
	if on, err := strconv.ParseBool(value); err == nil && !on { // it was meant to release it
		h.Release = fmt.Sprintf("the value %q holds like any other that is no instant; %s", value, h.Release)
	}
	if hold.Ends {
		h.Release = fmt.Sprintf("it ends at %s; %s", hold.Until.UTC().Format(time.RFC3339), h.Release)
	}
	return []Hold{h}
}

// annotator returns who has set an annotation and when, by the managed fields. Who sets the same value later owns it as well, so
// that the first one counts.
func annotator(obj metav1.Object, annotation string) (who string, since time.Time) {
	who = "the annotation " + annotation
	field := []byte(`"f:` + annotation + `"`)
	for _, m := range obj.GetManagedFields() {
		if m.FieldsV1 == nil || m.Time == nil || !bytes.Contains(m.FieldsV1.GetRawBytes(), field) {
			continue
		}
		if since.IsZero() || m.Time.Time.Before(since) {
			who, since = m.Manager, m.Time.Time
		}
	}
	return who, since
}

// maintenanceConditions are those of KEP-5683.
var maintenanceConditions = []corev1.NodeConditionType{"MaintenancePlanned", "MaintenanceInProgress", "DrainInProgress"}

// conditions are the holds of a Node's conditions. One that is neither true nor false holds.
func conditions(node *corev1.Node) []Hold {
	var holds []Hold
	for _, c := range node.Status.Conditions {
		if !slices.Contains(maintenanceConditions, c.Type) || c.Status == corev1.ConditionFalse {
			continue
		}
		holds = append(holds, Hold{
			Kind: NodeCondition, What: "node " + node.Name, Holder: "condition " + string(c.Type), Since: c.LastTransitionTime.Time,
			Reason: c.Message, Release: "it is released when the condition is False",
		})
	}
	return holds
}

// taints are those of who takes nodes away.
func taints(node *corev1.Node) []Hold {
	var holds []Hold
	for _, t := range node.Spec.Taints {
		owner := tainter(t.Key)
		if owner == "" {
			continue
		}
		h := Hold{
			Kind: NodeTaint, What: "node " + node.Name, Holder: owner, Reason: "taint " + t.ToString(),
			Release: "it is released when the taint is gone",
		}
		if t.TimeAdded != nil {
			h.Since = t.TimeAdded.Time
		}
		holds = append(holds, h)
	}
	return holds
}

// tainter returns who sets a taint that holds a node, or "".
func tainter(key string) string {
	group, _, _ := strings.Cut(key, "/")
	switch {
	case group == "medik8s.io" || strings.HasSuffix(group, ".medik8s.io"):
		return "medik8s"
	case key == corev1.TaintNodeOutOfService:
		return "whoever knows that the node is out of service"
	case key == "ToBeDeletedByClusterAutoscaler":
		return "cluster-autoscaler"
	case key == "karpenter.sh/disrupted", key == "karpenter.sh/disruption":
		return "Karpenter"
	default:
		return ""
	}
}
