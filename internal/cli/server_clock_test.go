package cli

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
)

// TestTheServersTimeCounts: a Lease has ended by the API server's time, and not by that of a laptop whose clock is ahead.
func TestTheServersTimeCounts(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", october.UTC().Format(http.TimeFormat))
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(server.Close)
	laptop := october.Add(20 * time.Second)
	now := &serverClock{own: clocktesting.NewFakePassiveClock(laptop)}
	require.Equal(t, laptop, now.Now(), "nobody has answered")
	f := managementFlags{observe: now.follow}
	cfg := &rest.Config{Host: server.URL}
	f.observed(cfg)
	c, err := discovery.NewDiscoveryClientForConfig(cfg)
	require.NoError(t, err)
	said, err := c.ServerVersion()
	require.NoError(t, err)
	require.Equal(t, &apiversion.Info{}, said)
	require.Equal(t, october.UTC(), now.Now().UTC())
	require.Equal(t, time.Minute, now.Since(october.Add(-time.Minute)))
}
