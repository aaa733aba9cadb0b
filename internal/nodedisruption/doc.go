// Package nodedisruption says, by the NodeDisruptionPolicies that select a Machine, what changes take on its node.
//
// Policies holds them as they were read last, on every replica: the hooks ask it which updaters judge a change, the reconciler
// asks it what a node is told. Both get the same answer for the same policies. Status shows what a policy means.
//
// A policy that can't be read is an error for each Machine that it selects, and never a "no": that would replace machines.
package nodedisruption
