package lab

import (
	"fmt"
	"strings"
)

// A Program is one of the executables that a lab is made of.
type Program string

// The programs. All but ReferenceExtension and those after it are needed to start a lab.
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
	// Clusterctl moves clusters between management clusters, and installs providers.
	Clusterctl Program = "clusterctl"
	// KubeControllerManager collects garbage and makes Pods of Deployments, where somebody asks a lab to.
	KubeControllerManager Program = "kube-controller-manager"
	// Helm installs charts.
	Helm Program = "helm"
	// CertManager has those of cert-manager's controllers that make self-signed certificates.
	CertManager Program = "cert-manager"
)

// The versions that modules/*/go.mod pin.
const (
	KubernetesVersion = "v1.36.3"
	EtcdVersion       = "v3.6.14"
	ClusterAPIVersion = "v1.14.2"
	HelmVersion       = "v3.21.4"
	// CertManagerVersion is the one that clusterctl of ClusterAPIVersion installs.
	CertManagerVersion = "v1.21.1"

	// ClusterAPITestVersion is of the module with InfraManager and ReferenceExtension. The release that goes with
	// ClusterAPIVersion can't be had as a module; this one builds against it.
	ClusterAPITestVersion = "v1.14.0"
)

// Programs returns all programs, in the order in which they are built: what takes longest comes last.
func Programs() []Program {
	return []Program{
		Etcd, CoreManager, BootstrapManager, ControlPlaneManager, InfraManager, ReferenceExtension, Clusterctl, KubeAPIServer, Kubectl,
		KubeControllerManager, Helm, CertManager,
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
	cold    string   // how long the first build takes on two cores
	tags    string   // of the build
	files   []string // what the program is made of, if that is here
}

// kubernetesFlags stamp the version: without it the API server calls itself v0.0.0, which the managers refuse as too old.
func kubernetesFlags(version string) string {
	const variable = "-X k8s.io/component-base/version."
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	return fmt.Sprintf("%[1]sgitVersion=%[2]s %[1]sgitMajor=%[3]s %[1]sgitMinor=%[4]s", variable, version, parts[0], parts[1])
}

func kubernetesSource(program, module, version, cold string) source {
	return source{module: module, version: version, pkg: "k8s.io/kubernetes/cmd/" + program, ldflags: kubernetesFlags(version), cold: cold}
}

func managerSource(pkg, version, cold string) source {
	return source{module: "clusterapi", version: version, pkg: "sigs.k8s.io/cluster-api/" + pkg, cold: cold}
}

var sources = map[Program]source{
	Etcd:                  {module: "etcd", version: EtcdVersion, pkg: "go.etcd.io/etcd/server/v3", cold: "1 minute"},
	KubeAPIServer:         kubernetesSource("kube-apiserver", "kubernetes", KubernetesVersion, "4 minutes"),
	Kubectl:               kubernetesSource("kubectl", "kubernetes", KubernetesVersion, "1 minute"),
	KubeControllerManager: kubernetesSource("kube-controller-manager", "kubernetes", KubernetesVersion, "1 minute"),
	CoreManager:           managerSource("core", ClusterAPIVersion, "2 minutes"),
	BootstrapManager:      managerSource("bootstrap/kubeadm", ClusterAPIVersion, "10 seconds"),
	ControlPlaneManager:   managerSource("controlplane/kubeadm", ClusterAPIVersion, "10 seconds"),
	InfraManager:          managerSource("test/infrastructure/docker", ClusterAPITestVersion, "1 minute"),
	ReferenceExtension:    managerSource("test/extension", ClusterAPITestVersion, "10 seconds"),
	Clusterctl:            {module: "clusterctl", version: ClusterAPIVersion, pkg: "sigs.k8s.io/cluster-api/cmd/clusterctl", cold: "1 minute"},
	Helm:                  {module: "helm", version: HelmVersion, pkg: "helm.sh/helm/v3/cmd/helm", cold: "2 minutes"},
	CertManager:           {module: "certmanager", version: CertManagerVersion, pkg: ".", cold: "2 minutes", files: []string{"main.go"}},
}
