// Package nodetest has a stand-in for a node: an sshd inside the test's own process, with a directory for its root.
//
// It is cheap, hundreds fit into one process, and it can be broken on purpose. It is no machine: commands run as the user who
// runs the test, systemctl is a script that writes down what it was asked, and nothing is isolated. Package
// test/nodes has real machines.
package nodetest
