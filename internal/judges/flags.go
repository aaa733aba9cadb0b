package judges

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/nodedisruption"
)

// RuleFlags are the flags that say what a change takes on a node. serve and explain share them, so that they agree.
type RuleFlags struct {
	allowPaths []string
	soak       time.Duration
}

// AddSoak adds the flag that only serve has: how long nodes are watched decides nothing about what is done.
func (f *RuleFlags) AddSoak(fs *pflag.FlagSet) {
	fs.DurationVar(&f.soak, "soak", 30*time.Second, "How long a node on which an update has restarted something, or which it has drained or rebooted, has to go on to work until the update has succeeded. NodeDisruptionPolicies may say something else. 0: not at all.")
}

// Add adds the flags.
func (f *RuleFlags) Add(fs *pflag.FlagSet) {
	fs.StringSliceVar(&f.allowPaths, "allow-paths", nil,
		"Directories whose files need no action on a node when they change, for example /etc/myapp; or that take a drain or a reboot: /etc/myapp=Drain, /etc/myboot=Reboot. They add to the built-in rules, and win over them where they are more specific. One that leaves out what the built-in rule for it has is refused.")
}

// Given reports whether one of the flags that Add adds is there.
func (f *RuleFlags) Given() bool { return len(f.allowPaths) > 0 }

// TakeFrom takes the flags that Add adds out of the arguments of a server. Those that it does not know are for others.
func (f *RuleFlags) TakeFrom(args []string) error {
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	f.Add(fs)
	return fs.Parse(args)
}

// Rules returns the rules where no policy says anything.
func (f *RuleFlags) Rules() (disruption.Rules, error) {
	allowed, err := disruption.AllowPaths(f.allowPaths)
	if err != nil {
		return disruption.Rules{}, err
	}
	if f.soak < 0 || f.soak > nodedisruption.MaxSoak {
		return disruption.Rules{}, fmt.Errorf("--soak is %s, and not between 0s and %s", f.soak, nodedisruption.MaxSoak)
	}
	rules := disruption.BuiltinRules()
	rules.Soak = &f.soak
	rules.Files = append(rules.Files, allowed...)
	return rules, nil
}
