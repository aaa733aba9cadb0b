// Package lease gives one operation at a time a node of a workload cluster to itself.
//
// The lock is a Lease that medik8s' operators (node-maintenance-operator, node-healthcheck-operator) use as well:
// medik8s-leases/node-<node>. A Locker acquires it, a Held renews and releases it, an Observer knows which one has lapsed. What
// else says that a node is somebody's is a Hold: Locker.Holds looks for all of them.
//
// Laws:
//
//   - An error is never "free". Acquire returns either a Held or an error, and with an error the lease is not ours, or is
//     released.
//   - The lease of another holder lapses only when its record has not changed for its duration and a tenth on our monotonic
//     clock, counted from when this process saw it first. Whoever reads no times in it waits for ever.
//   - Each acquisition has a token that is greater than those of all acquisitions before it. The node refuses lower ones, which
//     is what makes the lease safe: two may believe to hold it, but only the last one is obeyed.
//   - What is lost stays lost: a Held never makes its lease again.
//   - The API server may be away. Then nothing is lost, but after two thirds of the duration nothing that disturbs starts.
//
// Clients must read from the API server and not from a cache.
//
// The cases of the protocol have numbers, by which the tests here name them; with the tag e2e they run against a real API
// server. Elsewhere are 4, 15, 16 and 18 to 20 as far as the node and its drain go (internal/machineupdate, internal/agent), 17 (two
// replicas and one Machine: internal/machineupdate, the fault walk), 28 (slots: internal/slots), 29 (a marker that was there:
// internal/protection) and 31 (hooks don't look at leases: handlers).
package lease
