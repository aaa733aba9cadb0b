// Package system starts the whole of refit as users have it: the real Cluster API managers (package lab), a node for each
// Machine (package nodes), and two replicas of the server behind one address, registered as an ExtensionConfig.
// The managers show client certificates, and refit answers nobody else.
//
// What a cloud would do for new machines, it does itself: each Machine of the cluster gets a node, with the files that the
// Machine's bootstrap data lays down, and the node's address as an annotation.
package system
