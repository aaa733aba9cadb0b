//go:build e2e

package e2e

import (
	"context"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/test/lab"
	"github.com/capi-refit/refit/test/system"
)

// TestShards has two replicas share two clusters, and kills one of them while both clusters are updated.
func TestShards(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer assertNothingLeft(t)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	s, err := system.Start(ctx, system.Options{
		Source: root, BinDir: filepath.Join(root, "bin"), Progress: t.Output(), AllowPaths: []string{app, "/etc/demo.conf", editedFile.Path}, Shards: 2,
		More: []lab.ClusterOptions{{Namespace: "lab-c2", Name: "c2", Backend: lab.InMemory}},
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Stop()) }()
	one, other := &suite{s, ""}, &suite{s.More[0], ""}
	for _, scenario := range []struct {
		name string
		run  func(context.Context, *testing.T, *suite, *suite)
	}{
		{"each replica has a shard", eachHasAShard},
		{"one is killed in the middle of updates of both, and the other one goes on with all", oneOfTwoIsKilled},
		{"it comes back, and has a shard again", eachHasAShard},
	} {
		if !t.Run(scenario.name, func(t *testing.T) { scenario.run(ctx, t, one, other) }) {
			one.explainFailure(t)
			return
		}
	}
	t.Run("the audit logs are whole", func(t *testing.T) { one.auditVerifies(ctx, t) })
}

// shardLeases have who holds each shard, by name.
func (u *suite) shardLeases(ctx context.Context, t assert.TestingT) map[string]string {
	holders := map[string]string{}
	for _, name := range []string{"refit-shard-0-of-2", "refit-shard-1-of-2"} {
		var lease coordinationv1.Lease
		if err := u.Client.Get(ctx, client.ObjectKey{Namespace: "refit-system", Name: name}, &lease); assert.NoError(t, err) && lease.Spec.HolderIdentity != nil {
			holders[name] = *lease.Spec.HolderIdentity
		}
	}
	return holders
}

func eachHasAShard(ctx context.Context, t *testing.T, one, other *suite) {
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		holders := map[string]bool{}
		for _, holder := range one.shardLeases(ctx, c) {
			if holder != "" {
				holders[holder] = true
			}
		}
		require.Len(c, holders, 2, "two shards of two replicas")
	}, 5*time.Minute, 100*time.Millisecond) // one that has lost its lease on a machine that stalls starts again first
	// Each works on its own: a change in both clusters is made by two.
	by := map[string]bool{}
	befores := []map[string]types.UID{one.identities(ctx, t), other.identities(ctx, t)}
	for i, u := range []*suite{one, other} {
		f := file(app+"/shards", t.Name()+"\n")
		require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))
		u.rollOut(ctx, t, befores[i])
		for _, name := range u.workers(ctx, t) {
			mu, err := u.Update(ctx, name)
			require.NoError(t, err)
			require.True(t, system.Succeeded(mu))
			require.NoError(t, u.CheckFile(ctx, name, f))
			by[mu.Status.Instance] = true
		}
	}
	require.Len(t, by, 2, "those who have made the updates of two clusters")
}

func oneOfTwoIsKilled(ctx context.Context, t *testing.T, one, other *suite) {
	one.needsSystemd(t)
	both := []*suite{one, other}
	var befores []map[string]types.UID
	var names []string
	var releases []func()
	for _, u := range both {
		befores = append(befores, u.identities(ctx, t))
		u.slowEverywhere(ctx, t)
		name := u.workers(ctx, t)[0]
		names = append(names, name)
		releases = append(releases, u.holdSlow(ctx, t, name))
	}
	f := slowFile("survives a replica")
	var under []*refitv1.MachineUpdate
	for i, u := range both {
		require.NoError(t, u.Cluster.SetWorkerFiles(ctx, f))
		mu, err := u.AwaitUpdate(ctx, names[i], func(mu *refitv1.MachineUpdate) bool {
			return mu.Status.Phase == refitv1.PhaseApplying && mu.Status.Step != ""
		})
		require.NoError(t, err)
		under = append(under, mu)
	}
	require.NotEqual(t, under[0].Status.Instance, under[1].Status.Instance)
	killed := one.ReplicaOf(under[0])
	require.NotNil(t, killed)
	require.NoError(t, killed.Kill())
	t.Logf("killed %s in the middle of %q", killed.Name, under[0].Status.Step)
	for _, release := range releases {
		release()
	}
	for i, u := range both {
		u.rollOut(ctx, t, befores[i])
		mu, err := u.Update(ctx, names[i])
		require.NoError(t, err)
		require.True(t, system.Succeeded(mu))
		require.Equal(t, under[1].Status.Instance, mu.Status.Instance, "the one that is left has made both")
		for _, name := range u.workers(ctx, t) {
			after, err := u.Update(ctx, name)
			require.NoError(t, err)
			require.NoError(t, u.CheckFile(ctx, name, f))
			u.onceEach(ctx, t, name, after.Spec.Digest)
		}
	}
	require.NoError(t, one.Restart(ctx, killed))
}
