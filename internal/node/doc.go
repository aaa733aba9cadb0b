// Package node reaches a node: over SSH, with host keys verified always, it brings the agent there and speaks to it.
//
// wire.go is what server and agent say to each other: one JSON document on the agent's stdin, one on its stdout. The
// agent plans and applies; the server decides when, and that it may.
package node
