// Command refit-node is the agent on a node. The server brings it there and speaks JSON to it on its stdin and stdout.
package main

import (
	"context"
	"log/syslog"
	"os"
	"runtime"
	"syscall"

	"github.com/capi-refit/refit/internal/agent"
	"github.com/capi-refit/refit/internal/agent/gate"
	"github.com/capi-refit/refit/internal/agent/host"
)

// version is set when the binary is linked.
var version = "dev"

func main() {
	syscall.Umask(0o022) // of whoever has started it, one could keep programs of the node from reading what is made for them
	if args := os.Args[1:]; len(args) > 0 && args[len(args)-1] == gate.Command {
		os.Exit(gate.Main(context.Background(), gateConfig(), args, os.Stdin, os.Stdout))
	}
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

// gateConfig has the gate tell the node's own log what it does. Nothing of it comes from the environment, which may be the caller's.
func gateConfig() gate.Config {
	cfg := gate.Config{Architecture: runtime.GOARCH, Log: func(string) {}}
	if log, err := syslog.New(syslog.LOG_AUTHPRIV|syslog.LOG_NOTICE, "refit-node-gate"); err == nil { // a node without a log is no reason
		cfg.Log = func(line string) { _ = log.Notice(line) }
	}
	return cfg
}
