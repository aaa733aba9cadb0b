package skew

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/version"
)

// Behind is how many minor versions a kubelet, or kube-proxy, may be older than an API server, and kube-proxy older or newer than the
// kubelet beside it.
const Behind = 3

// Part is a component that runs somewhere.
type Part struct {
	// Name is what people know it by, for example "the API server of Machine fleet/cp-1".
	Name    string
	Version *version.Version
}

// Cluster is what the other machines of a cluster run.
type Cluster struct {
	// APIServers are all but the one of the machine that changes.
	APIServers []Part
	// Kubelets are those of other nodes. They matter only to a Change that has an API server RaisesMinor.
	Kubelets []Part
	// KubeProxy is what the DaemonSet runs on all nodes; nil: the cluster has none.
	KubeProxy *Part
}

// Change is another version for one machine.
type Change struct {
	// Name is that of its Node.
	Name string
	// From is the oldest version that the components of the machine run now.
	From, To *version.Version
	// ControlPlane reports whether the machine has an API server, which changes with it.
	ControlPlane bool
}

// RaisesMinor reports whether the change is to another minor version, so that what is three minors behind now would be four behind.
func (c Change) RaisesMinor() bool {
	return c.To.Major() != c.From.Major() || c.To.Minor() != c.From.Minor()
}

// Check returns what would break the policy if the change were made, each for people with what to do about it, or nothing. What is
// broken already and gets no worse is not among it: a control plane that is behind can always catch up.
func (c Change) Check(cluster Cluster) []string {
	if c.From.EqualTo(c.To) {
		return nil
	}
	if err := Follow(c.From, c.To); err != nil {
		return []string{fmt.Sprintf("Node %s runs v%s: %s", c.Name, c.From, err)}
	}
	if c.ControlPlane {
		return c.checkAPIServer(cluster)
	}
	return c.checkKubelet(cluster)
}

// checkKubelet: a kubelet is never newer than an API server, and kube-proxy stays within reach.
func (c Change) checkKubelet(cluster Cluster) (broken []string) {
	for _, server := range cluster.APIServers {
		if server.Version.LessThan(c.To) {
			broken = append(broken, fmt.Sprintf("the kubelet of Node %s would be newer than %s, which runs v%s; have the control plane updated first",
				c.Name, server.Name, server.Version))
		}
	}
	proxy := cluster.KubeProxy
	if proxy == nil {
		return broken
	}
	for _, server := range cluster.APIServers {
		if server.Version.LessThan(proxy.Version) {
			broken = append(broken, fmt.Sprintf("%s runs v%s and is newer than %s, which runs v%s; have the control plane updated, or kube-proxy taken back, first",
				proxy.Name, proxy.Version, server.Name, server.Version))
		}
	}
	if tooOld(proxy.Version, c.To) {
		broken = append(broken, c.behind(*proxy, "the kubelet of Node "+c.Name))
	}
	return broken
}

// checkAPIServer: API servers are within one minor of each other, and no kubelet and no kube-proxy is left too far behind.
func (c Change) checkAPIServer(cluster Cluster) (broken []string) {
	if !c.RaisesMinor() {
		return nil
	}
	for _, server := range cluster.APIServers {
		if server.Version.Major() != c.To.Major() || server.Version.Minor()+1 < c.To.Minor() {
			broken = append(broken, fmt.Sprintf("%s runs v%s, and API servers have to be within one minor version of each other; have it updated first",
				server.Name, server.Version))
		}
	}
	older := slices.Clone(cluster.Kubelets)
	if cluster.KubeProxy != nil {
		older = append(older, *cluster.KubeProxy)
	}
	for _, part := range older {
		if tooOld(part.Version, c.To) {
			broken = append(broken, c.behind(part, "the API server of Node "+c.Name))
		}
	}
	return broken
}

func tooOld(v, of *version.Version) bool {
	return v.Major() != of.Major() || v.Minor()+Behind < of.Minor()
}

func (c Change) behind(part Part, than string) string {
	return fmt.Sprintf("%s runs v%s and would be more than %d minor versions older than %s; have it brought to v%d.%d or newer first",
		part.Name, part.Version, Behind, than, c.To.Major(), c.To.Minor()-Behind)
}
