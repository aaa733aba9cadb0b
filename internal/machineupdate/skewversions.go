package machineupdate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/skew"
)

// What kubeadm calls the API server and kube-proxy in the cluster.
const (
	kubeAPIServer = "kube-apiserver"
	kubeProxy     = "kube-proxy"
)

// versions are those of a cluster, as far as they were read.
type versions struct {
	*update
	// own is the name of the Node that is about to change.
	own string
	// images are the versions of the API servers' images, by the name of the Node.
	images map[string]*version.Version
	// servers are the API servers but the one of this Machine.
	servers []skew.Part
}

// readAPIServers reads which versions the API servers of the cluster run. Each counts as the oldest that anything says of it: the image of
// its pod, the kubelet beside it, which kubeadm brings last, and its Machine unless that is being updated.
func (v *versions) readAPIServers(ctx context.Context) error {
	v.own = v.regarding.Status.NodeRef.Name
	if err := v.readImages(ctx); err != nil {
		return err
	}
	var machines clusterv1.MachineList
	of := client.MatchingLabels{clusterv1.ClusterNameLabel: v.regarding.Spec.ClusterName}
	controlPlane := client.HasLabels{clusterv1.MachineControlPlaneLabel}
	if err := v.Live.List(ctx, &machines, client.InNamespace(v.regarding.Namespace), of, controlPlane); err != nil {
		return fmt.Errorf("list the control plane's Machines: %w", err)
	}
	matched := map[string]bool{v.own: true}
	for i := range machines.Items {
		m := &machines.Items[i]
		if m.Name == v.regarding.Name {
			continue
		}
		there, err := v.reached(ctx, m)
		if err != nil {
			return err
		}
		part, err := v.serverOf(ctx, m, there)
		if err != nil {
			return err
		}
		matched[m.Status.NodeRef.Name] = true
		if part != nil {
			v.servers = append(v.servers, *part)
		}
	}
	for node, image := range v.images {
		if !matched[node] {
			v.servers = append(v.servers, skew.Part{Name: "the API server of Node " + node, Version: image})
		}
	}
	slices.SortFunc(v.servers, func(a, b skew.Part) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// readImages reads the images of the API servers that kubeadm runs as static pods, of which the workload cluster shows a mirror each.
func (v *versions) readImages(ctx context.Context) error {
	v.images = map[string]*version.Version{}
	var pods corev1.PodList
	of := client.MatchingLabels{"component": kubeAPIServer}
	if err := v.occupied.cluster.Client.List(ctx, &pods, client.InNamespace(metav1.NamespaceSystem), of); err != nil {
		return fmt.Errorf("list the pods of the API servers: %w", err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		image := imageOf(p.Spec.Containers, kubeAPIServer)
		if p.Spec.NodeName == "" || image == "" {
			continue
		}
		is, err := skew.ParseImage(image)
		if err != nil {
			return fmt.Errorf("the version of the API server of Node %s can't be told: %w; give the image a tag that is the version", p.Spec.NodeName, err)
		}
		v.images[p.Spec.NodeName] = is
	}
	return nil
}

// imageOf returns the image of a container, or "".
func imageOf(containers []corev1.Container, name string) string {
	for _, c := range containers {
		if c.Name == name {
			return c.Image
		}
	}
	return ""
}

// reached reports whether a Machine runs the version in its spec, as far as the management cluster knows: nobody is bringing it there. The
// MachineUpdate is found by its name: its labels and owners anybody may edit.
func (v *versions) reached(ctx context.Context, m *clusterv1.Machine) (bool, error) {
	if _, marked := m.Annotations[clusterv1.UpdateInProgressAnnotation]; marked {
		return false, nil
	}
	var mu refitv1.MachineUpdate
	if err := v.Live.Get(ctx, client.ObjectKeyFromObject(m), &mu); err != nil {
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, fmt.Errorf("read the MachineUpdate of Machine %s: %w", m.Name, err)
	}
	return mu.Status.Phase == refitv1.PhaseSucceeded && mu.Status.ObservedDigest == mu.Spec.Digest, nil
}

// serverOf returns the API server of a control-plane Machine, or nil for one that goes and has neither Node nor pod any more.
func (v *versions) serverOf(ctx context.Context, m *clusterv1.Machine, reached bool) (*skew.Part, error) {
	said, err := v.shownBy(ctx, m.Status.NodeRef.Name)
	if err != nil {
		return nil, err
	}
	gone := len(said) == 0 && !m.DeletionTimestamp.IsZero()
	if gone {
		return nil, nil
	}
	if reached && m.Spec.Version != "" {
		if said["by its spec"], err = skew.Parse(m.Spec.Version); err != nil {
			return nil, fmt.Errorf("the spec of Machine %s: %w", m.Name, err)
		}
	}
	source, is := lowest(said)
	if is == nil {
		return nil, fmt.Errorf("nothing tells which version the API server of Machine %s runs", m.Name)
	}
	return &skew.Part{Name: fmt.Sprintf("the API server of Machine %s (%s)", m.Name, source), Version: is}, nil
}

// shownBy returns the versions that a node shows of its API server, by where each is from. Of a Machine that has no Node yet it is called
// without a name.
func (v *versions) shownBy(ctx context.Context, name string) (map[string]*version.Version, error) {
	said := map[string]*version.Version{}
	if image := v.images[name]; image != nil {
		said["by the image of its pod"] = image
	}
	if name == "" {
		return said, nil
	}
	switch kubelet, err := v.kubelet(ctx, name); {
	case apierrors.IsNotFound(err): // the Node is gone
		return said, nil
	case err != nil:
		return nil, err
	default:
		said["by the kubelet beside it"] = kubelet
		return said, nil
	}
}

// kubelet returns the version that a Node reports.
func (v *versions) kubelet(ctx context.Context, name string) (*version.Version, error) {
	var n corev1.Node
	if err := v.occupied.cluster.Client.Get(ctx, types.NamespacedName{Name: name}, &n); err != nil {
		return nil, fmt.Errorf("read Node %s: %w", name, err)
	}
	return kubeletOf(&n)
}

func kubeletOf(n *corev1.Node) (*version.Version, error) {
	is, err := skew.Parse(n.Status.NodeInfo.KubeletVersion)
	if err != nil {
		return nil, fmt.Errorf("the version that the kubelet of Node %s reports can't be read: %w; have it report one, or delete the Node if nothing runs there", n.Name, err)
	}
	return is, nil
}

// from returns the oldest version that runs on the node which is about to change.
func (v *versions) from(ctx context.Context, controlPlane bool) (*version.Version, error) {
	is, err := v.kubelet(ctx, v.own)
	if image := v.images[v.own]; err == nil && controlPlane && image != nil && image.LessThan(is) {
		is = image
	}
	return is, err
}

// cluster returns what the change is to be compared with.
func (v *versions) cluster(ctx context.Context, change skew.Change) (c skew.Cluster, err error) {
	c.APIServers = v.servers
	if !change.ControlPlane {
		if c.APIServers, err = v.allServers(ctx); err != nil {
			return c, err
		}
	}
	if change.ControlPlane && !change.RaisesMinor() {
		return c, nil // a patch leaves nothing further behind
	}
	if c.KubeProxy, err = v.kubeProxy(ctx); err != nil {
		return c, err
	}
	if change.ControlPlane {
		c.Kubelets, err = v.kubelets(ctx)
	}
	return c, err
}

// kubelets returns those of all other Nodes.
func (v *versions) kubelets(ctx context.Context) (all []skew.Part, err error) {
	var nodes corev1.NodeList
	if err := v.occupied.cluster.Client.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if n.Name == v.own {
			continue
		}
		is, err := kubeletOf(n)
		if err != nil {
			return nil, err
		}
		all = append(all, skew.Part{Name: "the kubelet of Node " + n.Name, Version: is})
	}
	return all, nil
}

// allServers returns the API servers that are known, and those that the cluster names behind its address and that can be asked: one may run
// an older version than its Machine and its pod say.
func (v *versions) allServers(ctx context.Context) ([]skew.Part, error) {
	endpoints, known, err := v.occupied.cluster.Endpoints(ctx)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(v.servers)
	var silent []string
	for _, e := range endpoints {
		if e.Version == "" {
			silent = append(silent, e.Address)
			continue
		}
		is, err := skew.Parse(e.Version)
		if err != nil {
			return nil, fmt.Errorf("the version of the API server at %s: %w", e.Address, err)
		}
		all = append(all, skew.Part{Name: "the API server at " + e.Address, Version: is})
	}
	if len(v.servers) > 0 {
		return all, nil
	}
	answers, err := v.answering()
	switch {
	case err != nil:
		return nil, err
	case !known:
		answers.Name += " (refit may not read the EndpointSlices of default/kubernetes, which name the others)"
	case len(silent) > 0:
		answers.Name += " (" + strings.Join(silent, ", ") + " can't be asked from where refit runs)"
	}
	return append([]skew.Part{answers}, all...), nil
}

// answering returns the API server that answers at the cluster's address, of which neither a Machine nor a pod is known.
func (v *versions) answering() (skew.Part, error) {
	info, err := v.occupied.cluster.Clientset.Discovery().ServerVersion()
	if err != nil {
		return skew.Part{}, fmt.Errorf("ask the API server for its version: %w", err)
	}
	is, err := skew.Parse(info.GitVersion)
	if err != nil {
		return skew.Part{}, fmt.Errorf("the version of the API server that answers: %w", err)
	}
	return skew.Part{Name: "the API server that answers", Version: is}, nil
}

// kubeProxy returns what the DaemonSet runs, or nil if the cluster has none.
func (v *versions) kubeProxy(ctx context.Context) (*skew.Part, error) {
	var set appsv1.DaemonSet
	key := types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: kubeProxy}
	switch err := v.occupied.cluster.Client.Get(ctx, key, &set); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read DaemonSet %s: %w", key, err)
	}
	is, err := skew.ParseImage(imageOf(set.Spec.Template.Spec.Containers, kubeProxy))
	if err != nil {
		return nil, fmt.Errorf("the version of kube-proxy can't be told: %w; give the container %s of DaemonSet %s an image whose tag is the version", err, kubeProxy, key)
	}
	return &skew.Part{Name: "DaemonSet " + key.String(), Version: is}, nil
}
