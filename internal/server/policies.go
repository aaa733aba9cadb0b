package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/health"
	"github.com/capi-refit/refit/internal/shard"
	"github.com/capi-refit/refit/webhook"
)

// changeManagement decides when updates may start.
type changeManagement struct {
	gate   *changemanagement.Gate
	hooks  *changemanagement.Hooks
	health *health.Asker
}

// lifecycle are the hooks that hold a version upgrade back.
func (c *changeManagement) lifecycle(scope handlers.Scope) []webhook.Hook {
	var out []webhook.Hook
	for _, h := range handlers.NewLifecycle(c.hooks, scope).Hooks() {
		out = append(out, webhook.Hook{Hook: h.Hook, Name: h.Name, Timeout: hookTimeout, Handle: h.Handle})
	}
	return out
}

// addChangeManagement has the manager keep the policies, show what they mean, and measure it. namespace is refit's own. Health gates may ask at some
// URLs only.
func addChangeManagement(
	ctx context.Context, mgr shard.Manager, versions changemanagement.Versions, lives changemanagement.Lives, namespace string, gateURLs []string,
) (*changeManagement, error) {
	now := clock.RealClock{}
	counters := changemanagement.NewMetrics(metrics.Registry)
	policies := changemanagement.NewPolicies(mgr.GetClient(), mgr.GetAPIReader(), now)
	policies.Namespace = namespace
	allowed, err := health.ParseURLs(gateURLs)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", gateURLsFlag, err)
	}
	policies.MayAsk = allowed.Allow
	waits := &changemanagement.Waits{Client: mgr.GetClient(), Lives: lives, Clock: now}
	asker := health.NewAsker(health.Sources{Management: mgr.GetAPIReader()}, now, mgr.Shards.Holds)
	gate := &changemanagement.Gate{Policies: policies, Client: mgr.GetClient(), Informers: mgr.GetCache(), Live: mgr.GetAPIReader(), Clock: now, Metrics: counters, Waits: waits, Health: asker}
	soaks := &changemanagement.Soaks{Gate: gate, Recorder: mgr.GetEventRecorder("refit")}
	status := &changemanagement.Status{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Policies: policies, Recorder: mgr.GetEventRecorder("refit"), Clock: now, Gate: gate}
	since := &changemanagement.Since{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Clock: now}
	hooks := &changemanagement.Hooks{Policies: policies, Client: mgr.GetClient(), Versions: versions, Clock: now, Recorder: mgr.GetEventRecorder("refit")}
	remediations := &changemanagement.Remediations{Client: mgr.GetClient(), Hooks: hooks, Metrics: counters}
	if err := errors.Join(
		policies.SetupWithManager(mgr), remediations.SetupWithManager(mgr), status.Watch(ctx, mgr.GetCache()), status.SetupWithManager(mgr), since.SetupWithManager(mgr),
		soaks.SetupWithManager(mgr), mgr.Add(asker), counters.ForgetClusters(ctx, mgr.GetCache()),
		mgr.AddReadyzCheck("policies", func(*http.Request) error { return policies.Ready() }),
	); err != nil {
		return nil, fmt.Errorf("add change management: %w", err)
	}
	whenLeading(mgr, &changemanagement.Collector{Client: mgr.GetClient(), Informers: mgr.GetCache(), Policies: policies, Clock: now, Waits: waits})
	mgr.Shards.OnAcquire(asker.ForgetNamespaces)
	return &changeManagement{gate: gate, health: asker, hooks: hooks}, nil
}

// ownNamespace returns the namespace that refit runs in; empty if that is not known.
func (o *options) ownNamespace() string {
	inPod, _ := os.ReadFile(ownNamespace) // there is none outside of pods
	return cmp.Or(os.Getenv("POD_NAMESPACE"), o.leaderNamespace, strings.TrimSpace(string(inPod)))
}

// cached are what hooks are answered from.
func cached() []client.Object {
	deployments := &metav1.PartialObjectMetadata{}
	deployments.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineDeployment"))
	return []client.Object{
		&clusterv1.Machine{}, &clusterv1.Cluster{}, deployments, &refitv1.MachineUpdate{}, &refitv1.ChangeManagementPolicy{}, &refitv1.ClusterChangeManagementPolicy{},
		changemanagement.NamespaceMetadata(), &refitv1.NodeDisruptionPolicy{},
		&refitv1.KubernetesSource{}, &refitv1.BootImagePolicy{}, &refitv1.NodeAccess{},
	}
}

// clustersAgain is how often Clusters come to controllers that have not changed, where the fleet is divided.
const clustersAgain = 15 * time.Second

// uncopied are those that are read often, or many at once. Nobody changes what is read of them.
func uncopied(shards *shard.Shards) map[client.Object]cache.ByObject {
	yes := true
	out := map[client.Object]cache.ByObject{}
	for _, obj := range []client.Object{&clusterv1.Machine{}, &clusterv1.Cluster{}, &refitv1.MachineUpdate{}, &refitv1.PendingChange{}} {
		out[obj] = cache.ByObject{UnsafeDisableDeepCopy: &yes}
	}
	if shards != nil {
		// The ClusterCache asks of a Cluster that it was told to leave only when that comes again: its shard may be held by now.
		for obj, by := range out {
			if _, ok := obj.(*clusterv1.Cluster); ok {
				by.SyncPeriod = ptr.To(clustersAgain)
				out[obj] = by
			}
		}
	}
	return out
}
