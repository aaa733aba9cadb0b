package conformance_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/judges"
	"github.com/capi-refit/refit/internal/kubernetessource"
	"github.com/capi-refit/refit/internal/nodedisruption"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/webhook"
)

// refitsOwn are all of refit's updaters, with a rule for the file of the recorded requests, and no KubernetesSource.
func refitsOwn(t *testing.T) inplace.Updaters {
	t.Helper()
	rules := disruption.BuiltinRules()
	allowed, err := disruption.AllowPaths([]string{"/etc/demo.conf"})
	require.NoError(t, err)
	rules.Files = append(rules.Files, allowed...)
	all, err := judges.List()(nodedisruption.Effective{Rules: rules})
	require.NoError(t, err)
	return inplace.UpdatersFunc(func(_ context.Context, s inplace.Subject) (*updaters.Registry, error) {
		return judges.Select(s, all, rules, nil, func(context.Context) (*kubernetessource.Selected, error) { return nil, nil }), nil // there is none
	})
}

// goesOn is an update that never ends.
type goesOn struct{}

func (goesOn) Update(context.Context, string, string, string) (inplace.Progress, error) {
	return inplace.Progress{Message: "the node is asked", RetryAfter: time.Minute}, nil
}

// refit returns what serves refit's hooks, as the server does.
func refit(t *testing.T) http.Handler {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	registry := prometheus.NewRegistry()
	server, err := webhook.NewServer(logr.Discard(), webhook.NewMetrics(registry))
	require.NoError(t, err)
	can := handlers.NewCanUpdate(handlers.NewEngine(refitsOwn(t)), handlers.NoPolicies{}, handlers.NewMetrics(registry), "")
	hooks := []webhook.Hook{
		{Hook: runtimehooksv1.CanUpdateMachine, Name: "can-update-machine", Timeout: 30 * time.Second, Handle: can.Machine},
		{Hook: runtimehooksv1.CanUpdateMachineSet, Name: "can-update-machine-set", Timeout: 30 * time.Second, Handle: can.MachineSet},
		{Hook: runtimehooksv1.UpdateMachine, Name: "update-machine", Timeout: 30 * time.Second, Handle: handlers.NewUpdate(goesOn{}, "").Machine},
	}
	for _, h := range handlers.NewLifecycle(handlers.NoPolicies{}, "").Hooks() {
		hooks = append(hooks, webhook.Hook{Hook: h.Hook, Name: h.Name, Timeout: 30 * time.Second, Handle: h.Handle})
	}
	on := ctrlwebhook.NewServer(ctrlwebhook.Options{})
	require.NoError(t, server.Register(on, hooks))
	return on.WebhookMux()
}

// TestRefit: refit keeps all laws, and none is skipped.
func TestRefit(t *testing.T) {
	s := suite(t, refit(t))
	s.UpdateMachine = true
	report, err := s.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"can-update-machine", "can-update-machine-set", "update-machine"}, report.Handlers)
	for _, f := range report.Findings {
		require.Equal(t, "Pass", string(f.Result), "%s: %v", f.Name, append(f.Evidence, f.Reason))
	}
}
