package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/test/bench/floor"
)

// TestAServerIsMeasuredWhoseProcessIsNotKnown without its processor time.
func TestAServerIsMeasuredWhoseProcessIsNotKnown(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, floor.Answer) }))
	defer server.Close()
	c := &contender{name: "server", url: server.URL, client: server.Client(), paths: map[string]string{"CanUpdateMachine": "/"}}
	r := hookRequests{hook: "CanUpdateMachine", bodies: [][]byte{[]byte("{}")}}
	measured, err := c.measure(t.Context(), r, 2, 10*time.Millisecond)
	require.NoError(t, err)
	require.Positive(t, measured.perSecond)
	require.Zero(t, measured.cpu)
}
