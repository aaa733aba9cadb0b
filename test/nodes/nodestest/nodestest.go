// Package nodestest has tests start machines.
package nodestest

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/test/engine"
	"github.com/capi-refit/refit/test/nodes"
)

// On is the variable of the environment with what these tests run on: the kernel's version, the architecture and, if it answers, the engine's version. Results that
// go keeps are those of the same ones.
const On = "E2E_ON"

// Start starts containers for a test, which is skipped where there is no Docker: that is said, and is no success. They are
// removed when the test ends, and when the tests are interrupted, after which no test starts any more.
func Start(t testing.TB, o nodes.Options) *nodes.Fleet {
	t.Helper()
	named := len(strings.Fields(os.Getenv(On))) > 2 // go notes that it was read
	ctx := untilInterrupt()
	if err := (engine.Engine{}).Answers(ctx); err != nil && ctx.Err() == nil {
		if named { // go would keep that it was skipped
			t.Fatal("Docker has answered, and does no longer: ", err)
		}
		t.Skip("Docker does not answer: ", err)
	}
	o.Kind, o.Progress = nodes.Containers, t.Output()
	f, err := nodes.Start(ctx, o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Stop(context.WithoutCancel(ctx))) })
	return f
}

// untilInterrupt is a context that the first interrupt of this process ends. The second one is as it was.
var untilInterrupt = sync.OnceValue(func() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx
})
