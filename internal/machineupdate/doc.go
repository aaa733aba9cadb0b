// Package machineupdate makes the updates that Cluster API asks for. A Store, in every replica, records what is asked for
// in a MachineUpdate and answers how it stands; a Reconciler, in the leader, does the work.
//
// What holds in it:
//
//   - One function decides, flow.Decide, which is pure. All else gathers facts for it (state.go, look.go, occupy.go, gate.go) or does what it
//     says (commands.go).
//   - Decisions compare reasons, generations, digests and UIDs. A message is made where its reason is found, and read by people alone: what is
//     compared of a condition's is whether it shows already what would be written.
//   - The node is the record of what was done to it, the status of what was promised, and the workload cluster's Lease says who may. After a crash
//     State is put together from these three, and the update goes on: there is no code for resuming.
//   - Who puts something on takes it off: the finalizer is there as long as anything of refit's is on the Machine, the Node or the node (finalize.go,
//     releasenode.go, sweep.go).
//   - The node refuses whoever is not the last to have begun (the lease's token), so that a lost connection, a lost leader or a lost API server
//     leave work that goes on where it was.
package machineupdate
