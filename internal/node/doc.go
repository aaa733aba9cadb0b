// Package node is what server and agent say to each other: one JSON document on the agent's stdin, one on its stdout. The agent plans and
// applies; the server decides when, and that it may. Package remote is how the server reaches it.
package node
