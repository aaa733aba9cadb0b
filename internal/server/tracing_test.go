package server

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func TestTracingSaysWhichFlagIsWrong(t *testing.T) {
	for flag, value := range map[string]string{"--tracing-endpoint": ":4317", "--tracing-sampling-ratio": "1.1"} {
		f, fs := tracingFlags{}, pflag.NewFlagSet("refit", pflag.ContinueOnError)
		f.add(fs)
		require.NoError(t, fs.Parse([]string{flag + "=" + value}))
		_, err := f.start(t.Context(), "dev", "refit-1")
		require.ErrorContains(t, err, flag+": ")
		require.Nil(t, f.tracer)
	}
}
