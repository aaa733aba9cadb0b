// Command refit-node is the agent on a node. The server brings it there and speaks JSON to it on its stdin and stdout.
package main

import (
	"context"
	"os"
	"syscall"

	"github.com/capi-refit/refit/internal/agent"
	"github.com/capi-refit/refit/internal/agent/host"
)

// version is set when the binary is linked.
var version = "dev"

func main() {
	syscall.Umask(0o022) // of whoever has started it, one could keep programs of the node from reading what is made for them
	os.Exit(agent.Main(context.Background(), config(), os.Args[1:], os.Stdin, os.Stdout))
}

func config() agent.Config {
	root := os.Getenv("REFIT_ROOT")
	if root == "" {
		root = "/"
	}
	hostname, _ := os.Hostname()     // for people only
	executable, _ := os.Executable() // what needs it says that it is missing
	return agent.Config{Root: root, Clock: host.WallClock{}, Version: version, Hostname: hostname, Executable: executable}
}
