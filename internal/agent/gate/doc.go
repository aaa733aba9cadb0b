// Package gate is what stands between a login and root on a node, where refit comes in with less than a shell: sshd runs it whatever
// the login asks for. It reads one request on its stdin, and carries out three: to say what the node is, to take an agent that somebody
// whom the node trusts has signed, and to run such an agent with one of a few verbs. There is no shell, no path and no environment in a request.
//
// Its directory, var/lib/refit/gate, has
//
//	refit-node-DIGEST      the agents, the newest two
//	refit-node-DIGEST.sig  their signatures
//	rollback-index         the lowest that an agent's may be; a higher one comes with an agent that has it
//	lock                   held while an agent is taken
//
// What the node trusts is in etc/refit/agent-signers. Both must be where nobody but root can change them.
package gate
