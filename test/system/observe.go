package system

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/test/nodes"
)

// Identities returns the name and uid of each Machine. Two equal ones mean that no Machine was made again.
func (s *System) Identities(ctx context.Context) (map[string]types.UID, error) {
	machines, err := s.Cluster.Machines(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]types.UID{}
	for _, m := range machines {
		out[m.Name] = m.UID
	}
	return out, nil
}

// SetFiles sets the files of the control plane and of the workers. That is one change for each.
func (s *System) SetFiles(ctx context.Context, files ...bootstrapv1.File) error {
	return errors.Join(s.Cluster.SetControlPlaneFiles(ctx, files...), s.Cluster.SetWorkerFiles(ctx, files...))
}

// PutFiles sets files of the control plane and of the workers by their paths, and leaves the others. That is one change for
// each.
func (s *System) PutFiles(ctx context.Context, files ...bootstrapv1.File) error {
	put := func(all []bootstrapv1.File) []bootstrapv1.File {
		for _, f := range files {
			all = append(slices.DeleteFunc(all, func(old bootstrapv1.File) bool { return old.Path == f.Path }), f)
		}
		return all
	}
	return errors.Join(
		s.Cluster.ChangeControlPlane(ctx, func(kcp *controlplanev1.KubeadmControlPlane) {
			kcp.Spec.KubeadmConfigSpec.Files = put(kcp.Spec.KubeadmConfigSpec.Files)
		}),
		s.Cluster.ChangeWorkers(ctx, func(_ *clusterv1.MachineDeployment, config *bootstrapv1.KubeadmConfigSpec) {
			config.Files = put(config.Files)
		}),
	)
}

// Updates returns the MachineUpdates of the Machines that there are, in the order of the Machines.
func (s *System) Updates(ctx context.Context) ([]refitv1.MachineUpdate, error) {
	machines, err := s.Cluster.Machines(ctx)
	if err != nil {
		return nil, err
	}
	var out []refitv1.MachineUpdate
	for _, m := range machines {
		mu, err := s.Update(ctx, m.Name)
		if err != nil {
			return nil, err
		}
		if mu != nil {
			out = append(out, *mu)
		}
	}
	return out, nil
}

// Update returns the MachineUpdate of a Machine, or nil when there is none.
func (s *System) Update(ctx context.Context, machine string) (*refitv1.MachineUpdate, error) {
	var mu refitv1.MachineUpdate
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Cluster.Namespace, Name: machine}, &mu)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the MachineUpdate of %s: %w", machine, err)
	}
	return &mu, nil
}

// AwaitUpdate waits until the MachineUpdate of a Machine is as ok says, for 10 minutes at most. An API server that does not answer is asked
// again.
func (s *System) AwaitUpdate(ctx context.Context, machine string, ok func(*refitv1.MachineUpdate) bool) (*refitv1.MachineUpdate, error) {
	var last *refitv1.MachineUpdate
	var unanswered error
	err := wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, 10*time.Minute, true, func(ctx context.Context) (bool, error) {
		var mu *refitv1.MachineUpdate
		if mu, unanswered = s.Update(ctx, machine); mu == nil {
			return false, nil
		}
		last = mu
		return ok(mu), nil
	})
	if err != nil && last != nil {
		return nil, fmt.Errorf("wait for the update of %s, which is %s (%s): %w", machine, last.Status.Phase, last.Status.Message, errors.Join(err, unanswered))
	}
	if err != nil {
		return nil, errors.Join(err, unanswered)
	}
	return last, nil
}

// CheckFile says how a node's file differs from what the specs say, or nil.
func (s *System) CheckFile(ctx context.Context, machine string, want bootstrapv1.File) error {
	n := s.Fleet.Node(machine)
	if n == nil {
		return fmt.Errorf("machine %s has no node", machine)
	}
	got, err := n.ReadFile(ctx, want.Path)
	if err != nil {
		return err
	}
	expected := nodes.File{Content: []byte(want.Content), Mode: want.Permissions, Owner: want.Owner}
	if string(got.Content) != want.Content || got.Mode != expected.Mode || got.Owner != expected.Owner {
		return fmt.Errorf("on %s, %s is %q, mode %s, owner %s; it should be %q, %s, %s",
			machine, want.Path, got.Content, got.Mode, got.Owner, want.Content, want.Permissions, want.Owner)
	}
	return nil
}

// ReplicaOf returns the running replica that a MachineUpdate names as the one that works on it.
func (s *System) ReplicaOf(mu *refitv1.MachineUpdate) *Replica {
	for _, r := range s.Replicas {
		if strings.HasSuffix(mu.Status.Instance, fmt.Sprintf("_%d", r.PID)) {
			return r
		}
	}
	return nil
}

// Succeeded reports whether the update that is asked for has been made.
func Succeeded(mu *refitv1.MachineUpdate) bool {
	return mu.Status.Phase == refitv1.PhaseSucceeded && mu.Status.ObservedDigest == mu.Spec.Digest
}
