// Package lab runs a whole Cluster API management cluster on loopback: etcd, kube-apiserver and the unmodified managers of
// Cluster API, built from pinned Go modules on first use. It needs no container engine, no registry and no root.
//
// Start brings the management cluster up, Lab.CreateCluster makes a cluster of in-memory machines in it, and Lab.Stop ends
// everything that was started. Build only makes the executables.
//
// The infrastructure manager listens on fixed ports (19000, and 20000 up for the API servers of the in-memory clusters), so
// one lab runs on a host at a time: Start waits for its turn.
//
// The API server that the infrastructure manager gives to a cluster of in-memory machines knows a handful of types only, so that
// such a cluster has a real one beside it, of package apiserver: with the same nodes, which a mirror keeps up to date, and a fake
// kubelet, for which pods run that are bound to one of them and are gone when they are evicted. Cluster API keeps to the former;
// refit finds the latter by the Secret <cluster>-refit-kubeconfig. Nobody looks after PodDisruptionBudgets: tests set what their
// status says.
//
// Nobody runs kube-controller-manager here. Namespaces are not emptied when they are deleted, and objects are not garbage
// collected when their owner goes.
package lab
