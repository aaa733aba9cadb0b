// Command refit-node is the agent on a node. The server brings it there and speaks JSON to it on its stdin and stdout.
package main

import (
	"context"
	"os"
	"time"

	"github.com/capi-refit/refit/internal/agent"
)

// version is set when the binary is linked.
var version = "dev"

func main() {
	os.Exit(agent.Main(context.Background(), config(), os.Args[1:], os.Stdin, os.Stdout))
}

func config() agent.Config {
	root := os.Getenv("REFIT_ROOT")
	if root == "" {
		root = "/"
	}
	hostname, _ := os.Hostname()     // for people only
	executable, _ := os.Executable() // what needs it says that it is missing
	return agent.Config{Root: root, Clock: wallClock{}, Version: version, Hostname: hostname, Executable: executable}
}

// wallClock is the node's own time.
type wallClock struct{}

// Now implements agent.Clock.
func (wallClock) Now() time.Time { return time.Now().UTC() }

// Wait implements agent.Clock.
func (wallClock) Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
