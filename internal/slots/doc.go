// Package slots says how many nodes of a cluster may be disturbed at once.
//
// Slots gives a MachineUpdate a slot before anything is done that disturbs its node. The slot is recorded in the
// MachineUpdate's status, so that it outlives this process, and is kept when the update fails: failures must not walk through
// a fleet. Who ends an update removes it.
//
// Two rules hold within a cluster and a role. Of its workers, and of those in one failure domain, at most as many are out
// as Limits say; whoever takes them out counts. Of its control plane one is out at a time, and only while the others are
// healthy enough to keep etcd's quorum. A third holds for the whole cluster: while a node soaks, no next one gets a slot.
//
// Slots are given one at a time in a cluster, by the leader. What it has given counts from then on, whether its cache knows
// it or not, and a new leader reads once what the one before has given.
package slots
