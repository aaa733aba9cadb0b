// Package agent is what runs on a node. It observes the node, plans what has to change so that the node shows what is
// desired, and applies the plan: once, under a lock and a fencing token, with a journal, and with a way back.
//
// Plans are made three ways, between what is desired, what was recorded when it was applied last, and what is observed.
// What the specs did not change is never touched, even if the node has edited it since.
//
// A run is made of steps, each of which can be repeated. The journal is the authority on which of them are done: a step
// whose end is journaled never runs again, whatever happens to the process, and one that was only begun is repeated. So a
// run survives the loss of its connection, of its process and of the node's power.
//
// Everything is below a root directory, so that a directory can stand for a node. The state is in var/lib/refit:
//
//	record.json    what was applied last, and where what was there before is kept
//	token          the highest fencing token that was claimed
//	status.json    how the last run stands or ended
//	run.json       the work of a run under way: its plan and the contents that it writes; gone when it has ended
//	journal.jsonl  what was done, step by step; journal.jsonl.1 is the one before it
//	works.json     what of the node worked before a run under way, and what an earlier one has broken
//	active.json    which units were active before it, in the same way
//	originals/     what was there before a path was first applied
//	backups/       what the last runs have overwritten, a directory for each
//	lock           held by whoever works on the run, for as long as that takes
//	claim.lock     held for moments: while a token is claimed, a run is begun or ended
package agent
