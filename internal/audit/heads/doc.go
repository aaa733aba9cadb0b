// Package heads publishes the signed heads of audit logs, where who can write a log can't: in a ConfigMap of refit's namespace, one for
// each log, and in refit's own log.
//
// The key that signs them is in a Secret, which is made at the first start. Before a head is published for the first time by a process,
// the one that is there is compared with the log: what is missing is recorded in the log itself, so that no log that was cut off goes
// on as if nothing had happened, and the head that it does not fit stays in the ConfigMap beside the new one.
//
// That the API server is away keeps nothing from being recorded or sent: refit updates the very control planes that can be away. The
// head is then behind, which a metric shows, and catches up.
package heads
