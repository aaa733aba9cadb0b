package ui

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/internal/ui/uitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long something may take that takes no time.
const patience = 3 * time.Minute

// watching returns a Fleet that has read all that there is, as far as it may.
func watching(t *testing.T, c client.WithWatch) *Fleet {
	t.Helper()
	f := blind(t, c)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	require.Eventually(t, func() bool { return len(f.loading()) == 0 }, patience, 10*time.Millisecond)
	return f
}

// blind returns a Fleet that does not run.
func blind(t *testing.T, c client.WithWatch) *Fleet {
	t.Helper()
	f, err := NewFleet(Options{Client: c, Clock: clocktesting.NewFakePassiveClock(uitest.Now)})
	require.NoError(t, err)
	return f
}

// know gives a Fleet objects as if it had read them.
func know(t *testing.T, f *Fleet, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		for _, w := range f.kinds {
			if sameType(w.object, o) {
				slimmed, err := slim(o)
				require.NoError(t, err)
				require.NoError(t, w.informer.GetIndexer().Add(slimmed))
			}
		}
	}
	f.changes.Add(1)
}

// get asks the API.
func get[T any](t *testing.T, f *Fleet, path string) answer[T] {
	t.Helper()
	code, body := raw(t, f, path)
	require.Equal(t, http.StatusOK, code, string(body))
	var out answer[T]
	require.NoError(t, json.Unmarshal(body, &out))
	return out
}

func raw(t *testing.T, f *Fleet, path string) (int, []byte) {
	t.Helper()
	w := httptest.NewRecorder()
	f.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	body, err := io.ReadAll(w.Result().Body)
	require.NoError(t, err)
	return w.Code, body
}
