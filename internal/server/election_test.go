package server

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	logsv1 "k8s.io/component-base/logs/api/v1"
)

func TestHowAFleetIsDivided(t *testing.T) {
	for name, tc := range map[string]struct {
		args    []string
		divided bool
		says    string
	}{
		"by default":               {},
		"with a leader":            {args: []string{"--leader-elect"}},
		"into three":               {args: []string{"--leader-elect", "--shards=3", "--leader-elect-namespace=refit-system"}, divided: true},
		"into none":                {args: []string{"--leader-elect", "--shards=0"}, says: "--shards is 0 and can be 1 to 64"},
		"into too many":            {args: []string{"--leader-elect", "--shards=65"}, says: "can be 1 to 64"},
		"without an election":      {args: []string{"--shards=3"}, says: "so --leader-elect is needed"},
		"outside of a cluster":     {args: []string{"--leader-elect", "--shards=3"}, says: "takes --leader-elect-namespace"},
		"without a time to retry":  {args: []string{"--leader-elect", "--shards=3", "--leader-elect-namespace=x", "--leader-elect-retry-period=0s"}, says: "has to be 100ms at least"},
		"with the same whole time": {args: []string{"--leader-elect", "--shards=3", "--leader-elect-namespace=x", "--leader-elect-lease-duration=10.9s"}, says: "in whole seconds, more than the second"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &options{logs: logsv1.NewLoggingConfiguration()}
			fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
			o.add(fs)
			require.NoError(t, fs.Parse(tc.args))
			o.instance = "me"
			cfg := &rest.Config{Host: "127.0.0.1:1", QPS: 1000}
			e, err := o.elector(cfg)
			require.Equal(t, &rest.Config{Host: "127.0.0.1:1", QPS: 1000}, cfg, "watches of 30,000 Machines take longer than an election may")
			if tc.says != "" {
				require.ErrorContains(t, err, tc.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.divided, e != nil)
			if e != nil {
				require.Equal(t, 3, e.Shards.Count)
				require.Equal(t, "me", e.Identity)
				require.Equal(t, 15*time.Second, e.Duration)
			}
		})
	}
}
