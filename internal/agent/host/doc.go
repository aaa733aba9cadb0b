// Package host is the node as the agent sees and changes it: its files, their owners, the units of its service manager, and
// its own programs. Everything is below a root directory, so that a directory can stand for a node.
package host
