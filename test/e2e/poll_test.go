//go:build e2e

package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
)

// patience is what anything is given that is to come by itself. It is far more than it takes: scenarios of other clusters kill refit's
// leader meanwhile, and all share two cores.
const patience = 10 * time.Minute

// poll asks again and again, as long as patience lasts. An error is no answer: an API server may not be there for a moment. The last one
// is told in the end.
func poll(ctx context.Context, interval time.Duration, ok func(context.Context) (bool, error)) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, interval, patience, true, func(ctx context.Context) (bool, error) {
		var done bool
		if done, last = ok(ctx); last != nil {
			return false, nil
		}
		return done, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// eventually waits until a check finds nothing wrong. What others look at from time to time, or probe, may be wrong for a moment.
func eventually(ctx context.Context, t *testing.T, check func(context.Context) error) {
	t.Helper()
	require.NoError(t, poll(ctx, time.Second, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		return err == nil, err
	}))
}
