package server

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/shard"
)

func TestLoginInterval(t *testing.T) {
	var f loginFlags
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.add(fs)
	require.Equal(t, time.Hour, f.interval)
	require.NoError(t, fs.Parse([]string{"--login-interval=5s"}))
	require.ErrorContains(t, f.addTo(t.Context(), shard.Manager{}, nil), "--login-interval is 5s")
}
