package server

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func TestDriftInterval(t *testing.T) {
	var f driftFlags
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.add(fs)
	require.Equal(t, time.Hour, f.interval)
	require.NoError(t, fs.Parse([]string{"--drift-interval=5s"}))
	require.ErrorContains(t, f.addTo(nil, nil), "--drift-interval is 5s")
}
