// Package drain cordons a node of a workload cluster, has its pods leave, and uncordons it again.
//
// Which pods leave, and in which order, is what Cluster API does when it drains the node of a Machine that it deletes: its
// MachineDrainRules, its label on pods, its annotation and its timeout on Machines. There are two differences, because the
// machine stays: pods that have finished are left where they are, and nothing is evicted when no other node could take it.
//
// Laws:
//
//   - Nothing is forced. A pod leaves by an eviction, so that its PodDisruptionBudget is asked; when the time is over the drain
//     says what is left and stops.
//   - Each round reads all that it needs again and waits for nothing. It can be repeated, by another process as well.
//   - What can't be read is an error, and never a node that is empty.
//   - A node is drained when its pods have left and the volumes of those are detached.
//   - A cordon is refit's only if a Node says so, in the annotation that the same write has set. Only that one is undone.
//
// Clients of the workload cluster must read from its API server and not from a cache.
package drain
