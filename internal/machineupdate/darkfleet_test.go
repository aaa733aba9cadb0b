package machineupdate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

// darkNodes are nodes of which some never answer a dial, until the test ends. The others do what they are asked at once.
type darkNodes struct{ dark atomic.Int32 }

// dialled returns how many are being dialled that don't answer.
func (d *darkNodes) dialled() int { return int(d.dark.Load()) }

func (d *darkNodes) Dial(ctx context.Context, t remote.Target) (remote.Conn, error) {
	if strings.HasPrefix(t.Addresses[0].Host, "198.51.100.") {
		d.dark.Add(1)
		defer d.dark.Add(-1)
		<-ctx.Done()
		return nil, errors.Join(remote.ErrUnreachable, ctx.Err())
	}
	return &fakeNode{plans: []node.Plan{writeA, {}}, applied: []node.Status{succeeded}}, nil
}

// addMachine makes one more machine that is to be updated, with its Node.
func (w *world) addMachine(name, cluster, address string) types.NamespacedName {
	of := types.NamespacedName{Namespace: key.Namespace, Name: name}
	for _, obj := range managementtest.Updatable(of, "node-"+name, bootstrapv1.File{Path: "/etc/app/a", Content: "one\n"}) {
		switch o := obj.(type) {
		case *clusterv1.Machine:
			o.UID, o.Spec.ClusterName = types.UID("uid-"+name), cluster
			o.Labels[clusterv1.ClusterNameLabel] = cluster
			o.Annotations, o.Spec.Version = marks(), "v1.36.0"
			o.Status.Addresses[0].Address = address
			require.NoError(w.t, w.Create(w.t.Context(), o))
		case *bootstrapv1.KubeadmConfig:
			require.NoError(w.t, w.Create(w.t.Context(), o))
		case *clusterv1.Cluster:
			o.Name = cluster
			if err := w.Create(w.t.Context(), o); !apierrors.IsAlreadyExists(err) {
				require.NoError(w.t, err)
			}
		}
	}
	require.NoError(w.t, w.workload.Client.Create(w.t.Context(), workloadtest.Node("node-"+name)))
	machine, spec, err := readMachine(w.t.Context(), w, of)
	require.NoError(w.t, err)
	s, err := readSpecs(w.t.Context(), w, machine, spec)
	require.NoError(w.t, err)
	_, err = w.store.Update(w.t.Context(), of.Namespace, of.Name, s.digest)
	require.NoError(w.t, err)
	return of
}

// runs has workers take updates out of a queue until the test ends.
func (w *world) runs(queue workqueue.TypedRateLimitingInterface[ctrl.Request], workers int) {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				req, shutdown := queue.Get()
				if shutdown {
					return
				}
				result, err := w.reconciler.Reconcile(w.t.Context(), req)
				switch {
				case err != nil:
					queue.AddRateLimited(req)
				case result.RequeueAfter > 0:
					queue.AddAfter(req, result.RequeueAfter)
				}
				queue.Done(req)
			}
		})
	}
	w.t.Cleanup(func() { queue.ShutDown(); all.Wait() })
}

// TestDarkNodesOfOneClusterDelayNoOther: 200 nodes in two clusters, of which 50 of one never answer, and four workers. All of the other cluster are
// updated while these are still dialled for the first time.
func TestDarkNodesOfOneClusterDelayNoOther(t *testing.T) {
	each, dark := 100, 50
	if testing.Short() { // the race detector makes it take ten times as long
		each, dark = 20, 10
	}
	w := newWorld(t)
	nodes := &darkNodes{}
	w.reconciler.Recorder = events.NewFakeRecorder(10000) // one that is full blocks
	w.reconciler.Dialer = nodes
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	w.reconciler.Sessions = NewSessions(dark+10, dark)
	require.NoError(t, w.reconciler.Sessions.Source().Start(t.Context(), queue))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.reconciler.Sessions.Start(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })

	var well []types.NamespacedName
	for i := range each {
		address := fmt.Sprintf("192.0.2.%d", i+2)
		if i < dark {
			address = fmt.Sprintf("198.51.100.%d", i+2)
		}
		queue.Add(ctrl.Request{NamespacedName: w.addMachine(fmt.Sprintf("dark-%d", i), "c2", address)})
	}
	w.runs(queue, 4)
	require.Eventually(t, func() bool { return nodes.dialled() == dark }, 2*time.Minute, 10*time.Millisecond, "they take all places of their cluster")
	for i := range each {
		of := w.addMachine(fmt.Sprintf("well-%d", i), "c3", fmt.Sprintf("192.0.2.%d", i+2))
		well = append(well, of)
		queue.Add(ctrl.Request{NamespacedName: of})
	}
	require.Eventually(t, func() bool {
		for _, of := range well {
			var mu refitv1.MachineUpdate
			if err := w.Get(t.Context(), of, &mu); err != nil || mu.Status.Phase != refitv1.PhaseSucceeded {
				return false
			}
		}
		return true
	}, 2*time.Minute, 10*time.Millisecond)
	require.Equal(t, dark, nodes.dialled(), "none has given up meanwhile")
}
