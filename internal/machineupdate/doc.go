// Package machineupdate makes the updates that Cluster API asks for. A Store, in every replica, records what is asked for
// in a MachineUpdate and answers how it stands; a Reconciler, in the leader, does the work, phase by phase.
//
// Each phase can be entered again: what has been done is known from the node, and the node refuses whoever is not the
// last to have begun. A lost connection, a lost leader or a lost API server leave work that goes on where it was.
package machineupdate
