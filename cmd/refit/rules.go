package main

import (
	"slices"

	"github.com/spf13/pflag"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/files"
)

// ruleFlags are the flags that say what a change takes on a node. serve and explain share them, so that they agree.
type ruleFlags struct{ allowPaths []string }

func (f *ruleFlags) add(fs *pflag.FlagSet) {
	fs.StringSliceVar(&f.allowPaths, "allow-paths", nil,
		"Directories whose files need no action on a node when they change, for example /etc/myapp; or that take a drain or a reboot: /etc/myapp=Drain, /etc/default/grub.d=Reboot. They add to the built-in rules, and win over them where they are more specific.")
}

func (f *ruleFlags) rules() (disruption.Table, error) {
	allowed, err := disruption.AllowPaths(f.allowPaths)
	if err != nil {
		return nil, err
	}
	return slices.Concat(disruption.Builtin(), allowed), nil
}

// registry returns the updaters.
func registry(rules disruption.Table) (*updaters.Registry, error) {
	return updaters.NewRegistry(files.New(rules))
}
