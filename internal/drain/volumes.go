package drain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// detach returns how a node stands whose pods have left: drained, when the volumes have left as well that none of the pods uses which stay.
// A pod is gone before its volumes are detached, and what is attached to a node that is away can't be attached to another one.
//
// Which volumes count is as Cluster API has it: those of the Node's status and of VolumeAttachments. Those of a node that is unreachable
// are not waited for, since nobody detaches them.
func (d *Drainer) detach(ctx context.Context, req Request, node *corev1.Node) (Progress, error) {
	const drained = "the node is drained: it has no pods that are to leave"
	done := Progress{Done: true, Message: drained}
	if _, ok := req.Machine.Annotations[clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation]; ok || unreachable(node) {
		return done, nil
	}
	volumes, err := d.attached(ctx, node)
	if err != nil || len(volumes) == 0 {
		return done, err
	}
	left := fmt.Sprintf("%s attached that no pod uses which stays (%s)", counted(len(volumes), "volume"), named(volumes))
	if timeout, over := overdueAfter(req.Machine.Spec.Deletion.NodeVolumeDetachTimeoutSeconds, d.since(req.DetachingSince)); over {
		return skipped(fmt.Sprintf("%s; the Machine's nodeVolumeDetachTimeoutSeconds (%d) are over with %s", drained, int64(timeout/time.Second), left)), nil
	}
	p := Progress{Volumes: len(volumes)}
	if timeout, over := overdue(req.Machine, d.Clock.Since(req.Since)); over {
		p.TimedOut = true
		p.Message = fmt.Sprintf("the Machine's nodeDrainTimeoutSeconds (%d) are over; all pods have left, and there is %s", int64(timeout/time.Second), left)
		return p, nil
	}
	p.Message = fmt.Sprintf("all pods have left, and there is %s; to go on without waiting: kubectl annotate machine -n %s %s %s=",
		left, req.Machine.Namespace, req.Machine.Name, clusterv1.ExcludeWaitForNodeVolumeDetachAnnotation)
	return p, nil
}

// since returns how long ago that was; for no time at all, not long.
func (d *Drainer) since(at time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return d.Clock.Since(at)
}

// attached returns what is attached to the Node and used by none of the pods that stay there, in order: claims as namespace/name, what has
// no claim by its own name.
func (d *Drainer) attached(ctx context.Context, node *corev1.Node) ([]string, error) {
	byStatus := map[string]bool{}
	for _, v := range node.Status.VolumesAttached {
		byStatus[string(v.Name)] = true
	}
	byName, left, err := d.attachments(ctx, node)
	if err != nil || len(byStatus)+len(byName)+len(left) == 0 {
		return nil, err
	}
	kept, err := d.claimsOfPods(ctx, node)
	if err != nil {
		return nil, err
	}
	err = d.eachVolume(ctx, func(pv *corev1.PersistentVolume) {
		handle := handleOf(pv)
		if name := claimOf(pv); (byName[pv.Name] || byStatus[handle]) && !kept[name] {
			left = append(left, name)
		}
		delete(byName, pv.Name)
		delete(byStatus, handle)
	})
	if err != nil {
		return nil, err
	}
	for name := range byName {
		left = append(left, "PersistentVolume "+name)
	}
	left = slices.AppendSeq(left, maps.Keys(byStatus)) // of no PersistentVolume
	slices.Sort(left)
	return slices.Compact(left), nil
}

// handleOf returns the name that a PersistentVolume has in the status of the Node that it is attached to, or "".
func handleOf(pv *corev1.PersistentVolume) string {
	if csi := pv.Spec.CSI; csi != nil {
		return fmt.Sprintf("kubernetes.io/csi/%s^%s", csi.Driver, csi.VolumeHandle)
	}
	return ""
}

// claimOf returns the claim of a PersistentVolume as namespace/name, or what the volume is called if it has none.
func claimOf(pv *corev1.PersistentVolume) string {
	if claim := pv.Spec.ClaimRef; claim != nil && claim.Kind == "PersistentVolumeClaim" {
		return claim.Namespace + "/" + claim.Name
	}
	return "PersistentVolume " + pv.Name
}

// attachments returns the names of the PersistentVolumes that are attached to the Node, and what is attached that is none.
func (d *Drainer) attachments(ctx context.Context, node *corev1.Node) (volumes map[string]bool, others []string, err error) {
	volumes = map[string]bool{}
	for page := ""; ; {
		var list storagev1.VolumeAttachmentList
		if err := d.Client.List(ctx, &list, client.Limit(pageSize), client.Continue(page)); err != nil {
			return nil, nil, unreadable("VolumeAttachments", err)
		}
		for _, a := range list.Items {
			switch name := a.Spec.Source.PersistentVolumeName; {
			case a.Spec.NodeName != node.Name || !a.Status.Attached:
			case name == nil:
				others = append(others, "VolumeAttachment "+a.Name)
			default:
				volumes[*name] = true
			}
		}
		if page = list.Continue; page == "" {
			return volumes, others, nil
		}
	}
}

func (d *Drainer) eachVolume(ctx context.Context, see func(*corev1.PersistentVolume)) error {
	for page := ""; ; {
		var list corev1.PersistentVolumeList
		if err := d.Client.List(ctx, &list, client.Limit(pageSize), client.Continue(page)); err != nil {
			return unreadable("PersistentVolumes", err)
		}
		for i := range list.Items {
			see(&list.Items[i])
		}
		if page = list.Continue; page == "" {
			return nil
		}
	}
}

// claimsOfPods returns the PersistentVolumeClaims of the pods on a Node from which all pods have left that are to leave.
func (d *Drainer) claimsOfPods(ctx context.Context, node *corev1.Node) (map[string]bool, error) {
	claims := map[string]bool{}
	onNode := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node.Name).String(), Limit: pageSize}
	for {
		list, err := d.Clientset.CoreV1().Pods(metav1.NamespaceAll).List(ctx, onNode)
		if err != nil {
			return nil, unreadable("the pods that stay", err)
		}
		for _, pod := range list.Items {
			for _, v := range pod.Spec.Volumes {
				switch {
				case v.PersistentVolumeClaim != nil:
					claims[pod.Namespace+"/"+v.PersistentVolumeClaim.ClaimName] = true
				case v.Ephemeral != nil:
					claims[pod.Namespace+"/"+pod.Name+"-"+v.Name] = true
				}
			}
		}
		if onNode.Continue = list.Continue; onNode.Continue == "" {
			return claims, nil
		}
	}
}

func unreadable(what string, err error) error {
	hint := ""
	if apierrors.IsForbidden(err) {
		hint = "; give refit in the workload cluster the rights of config/workload of this version"
	}
	return fmt.Errorf("see which volumes are attached: list %s: %w%s", what, err, hint)
}
