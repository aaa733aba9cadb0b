// Package lab runs a whole Cluster API management cluster on loopback: etcd, kube-apiserver and the unmodified managers of
// Cluster API, built from pinned Go modules on first use. It needs no container engine, no registry and no root.
//
// Start brings the management cluster up, Lab.CreateCluster makes a cluster of in-memory machines in it, and Lab.Stop ends
// everything that was started. Build only makes the executables.
//
// The infrastructure manager listens on fixed ports (19000, and 20000 up for the API servers of the in-memory clusters), so
// one lab runs on a host at a time: Start waits for its turn.
//
// Nobody runs kube-controller-manager here. Namespaces are not emptied when they are deleted, and objects are not garbage
// collected when their owner goes.
package lab
