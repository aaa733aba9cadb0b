package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/nodedisruption"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/controlplane"
	"github.com/capi-refit/refit/updaters/declared"
	"github.com/capi-refit/refit/updaters/files"
	"github.com/capi-refit/refit/updaters/image"
	"github.com/capi-refit/refit/updaters/inert"
	"github.com/capi-refit/refit/updaters/kubelet"
	"github.com/capi-refit/refit/updaters/ntp"
	"github.com/capi-refit/refit/updaters/users"
	kubernetesversion "github.com/capi-refit/refit/updaters/version"
)

// ruleFlags are the flags that say what a change takes on a node. serve and explain share them, so that they agree.
type ruleFlags struct{ allowPaths []string }

func (f *ruleFlags) add(fs *pflag.FlagSet) {
	fs.StringSliceVar(&f.allowPaths, "allow-paths", nil,
		"Directories whose files need no action on a node when they change, for example /etc/myapp; or that take a drain or a reboot: /etc/myapp=Drain, /etc/default/grub.d=Reboot. They add to the built-in rules, and win over them where they are more specific.")
}

func (f *ruleFlags) rules() (disruption.Rules, error) {
	allowed, err := disruption.AllowPaths(f.allowPaths)
	if err != nil {
		return disruption.Rules{}, err
	}
	rules := disruption.BuiltinRules()
	rules.Files = append(rules.Files, allowed...)
	return rules, nil
}

// registry returns the updaters, by what holds for the Machines that they are to judge. It is the one list of them.
func registry(e nodedisruption.Effective) (*updaters.Registry, error) {
	return updaters.NewRegistry(
		inert.New(e.FutureOnly), // first: the others' reasons say more, and the last one is shown
		declared.New(e.Inert),
		files.New(e.Rules),
		users.New(e.Rules),
		ntp.New(e.Rules),
		kubelet.New(e.Rules),
		controlplane.New(e.Rules),
		image.New(nil),                      // it judges in versioned, which knows the BootImagePolicies of a machine
		kubernetesversion.New(e.Rules, nil), // it judges in versioned, which knows the KubernetesSource of a machine
	)
}

// addDisruptions has the manager keep the NodeDisruptionPolicies, show what they mean, and measure whether they can be read.
func addDisruptions(mgr ctrl.Manager, flags ruleFlags) (*nodedisruption.Policies, error) {
	builtIn, err := flags.rules()
	if err != nil {
		return nil, err
	}
	// That the updaters can be made at all is known from the start.
	if _, err := registry(nodedisruption.Join(builtIn)); err != nil {
		return nil, err
	}
	policies := nodedisruption.NewPolicies(mgr.GetClient(), builtIn, registry)
	status := &nodedisruption.Status{Client: mgr.GetClient(), Policies: policies, Recorder: mgr.GetEventRecorder("refit")}
	if err := errors.Join(
		policies.SetupWithManager(mgr), status.SetupWithManager(mgr),
		mgr.AddReadyzCheck("disruptions", func(*http.Request) error { return policies.Ready() }),
	); err != nil {
		return nil, fmt.Errorf("add what says what changes take: %w", err)
	}
	whenLeading(mgr, policies.Collector())
	return policies, nil
}
