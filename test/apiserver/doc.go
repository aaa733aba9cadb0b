// Package apiserver starts real API servers for tests and for the lab: a kube-apiserver with an etcd of its own, or with
// another one's. Authorization is by RBAC.
//
// Nothing else of a control plane is there. Namespaces default, kube-system, kube-public and kube-node-lease exist, and tokens of
// ServiceAccounts can be asked for, because the API server does that by itself. Without controllers, nobody deletes what an
// owner leaves behind, empties a Namespace, makes the ServiceAccount of one, or fills in the status of a PodDisruptionBudget; and
// without a kubelet pods that are evicted stay unless their grace period is 0. So pods need no ServiceAccount here, and nodes get
// no taint for not being ready, which nobody would take away.
package apiserver
