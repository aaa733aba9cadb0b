package lab

import "fmt"

// A Program is one of the executables that a lab is made of.
type Program string

// The programs. All but ReferenceExtension are needed to start a lab.
const (
	Etcd                Program = "etcd"
	KubeAPIServer       Program = "kube-apiserver"
	Kubectl             Program = "kubectl"
	CoreManager         Program = "core-manager"
	BootstrapManager    Program = "kubeadm-bootstrap-manager"
	ControlPlaneManager Program = "kubeadm-control-plane-manager"
	InfraManager        Program = "docker-manager"

	// ReferenceExtension is Cluster API's own test extension, which answers the in-place update hooks and fakes the update.
	ReferenceExtension Program = "reference-extension"
)

// The versions that modules/*/go.mod pin.
const (
	KubernetesVersion = "v1.36.3"
	EtcdVersion       = "v3.6.14"
	ClusterAPIVersion = "v1.14.2"

	// ClusterAPITestVersion is of the module with InfraManager and ReferenceExtension. The release that goes with
	// ClusterAPIVersion can't be had as a module; this one builds against it.
	ClusterAPITestVersion = "v1.14.0"
)

// Programs returns all programs, in the order in which they are built: what takes longest comes last.
func Programs() []Program {
	return []Program{
		Etcd, CoreManager, BootstrapManager, ControlPlaneManager, InfraManager, ReferenceExtension, KubeAPIServer, Kubectl,
	}
}

// labPrograms are the programs without which a lab does not start.
func labPrograms() []Program {
	return []Program{Etcd, CoreManager, BootstrapManager, ControlPlaneManager, InfraManager, KubeAPIServer, Kubectl}
}

// A source says what a program is built from.
type source struct {
	module  string // directory below modules/
	version string // for people and for the cache's key
	pkg     string // main package
	ldflags string
	cold    string // how long the first build takes on two cores
}

// kubernetesVersionFlags stamp the version: without it the API server calls itself v0.0.0, which the managers refuse as too old.
var kubernetesVersionFlags = fmt.Sprintf(
	"-X k8s.io/component-base/version.gitVersion=%s "+
		"-X k8s.io/component-base/version.gitMajor=1 "+
		"-X k8s.io/component-base/version.gitMinor=36", KubernetesVersion)

var sources = map[Program]source{
	Etcd: {"etcd", EtcdVersion, "go.etcd.io/etcd/server/v3", "", "1 minute"},
	KubeAPIServer: {"kubernetes", KubernetesVersion, "k8s.io/kubernetes/cmd/kube-apiserver",
		kubernetesVersionFlags, "4 minutes"},
	Kubectl: {"kubernetes", KubernetesVersion, "k8s.io/kubernetes/cmd/kubectl",
		kubernetesVersionFlags, "1 minute"},
	CoreManager: {"clusterapi", ClusterAPIVersion, "sigs.k8s.io/cluster-api/core", "", "2 minutes"},
	BootstrapManager: {"clusterapi", ClusterAPIVersion, "sigs.k8s.io/cluster-api/bootstrap/kubeadm",
		"", "10 seconds"},
	ControlPlaneManager: {"clusterapi", ClusterAPIVersion, "sigs.k8s.io/cluster-api/controlplane/kubeadm",
		"", "10 seconds"},
	InfraManager: {"clusterapi", ClusterAPITestVersion, "sigs.k8s.io/cluster-api/test/infrastructure/docker",
		"", "1 minute"},
	ReferenceExtension: {"clusterapi", ClusterAPITestVersion, "sigs.k8s.io/cluster-api/test/extension",
		"", "10 seconds"},
}
