// Package install installs refit into a lab as its users do: by clusterctl, Helm and kubectl, out of what a release has.
//
// What runs is real where a program of it can be built: the API server, Cluster API's managers, Kubernetes' controllers of Deployments, ReplicaSets and
// Namespaces, those of cert-manager that make certificates, clusterctl, Helm, kubectl, and refit. What stands for the rest is here, and does no more than
// that: Kubelet is the scheduler, the kubelet and the container runtime, and Services are DNS and kube-proxy. Nothing enforces NetworkPolicies,
// resource limits or security contexts, and no image is pulled: the programs of this checkout run in the place of what the image has.
package install
