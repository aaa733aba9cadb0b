package machineupdate

import (
	"context"
	"fmt"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/kubernetessource"
	"github.com/capi-refit/refit/internal/node"
)

const (
	// stageWaitSeconds is how long one call of the agent waits for the end of staging.
	stageWaitSeconds = 10
	// retryStage is how soon a node is asked again that is still at it.
	retryStage = time.Second
)

// Releases says where another version of Kubernetes comes from.
type Releases interface {
	// Machine returns the source of a Machine; nil if none selects it.
	Machine(ctx context.Context, m *clusterv1.Machine) (*kubernetessource.Selected, error)
}

// origin is where the version that the specs want comes from, as far as that is known. Only a node that does not run that version
// asks for it.
type origin struct {
	source *node.Source
	// early reports that it may be fetched before the update may start.
	early bool
	// lack says why there is no source.
	lack error
}

// findOrigin looks for where a version comes from. What it can't tell holds back nothing but a change of the version.
func (u *update) findOrigin(ctx context.Context, machine *clusterv1.Machine) origin {
	version := machine.Spec.Version
	if version == "" || u.Releases == nil {
		return origin{}
	}
	selected, err := u.Releases.Machine(ctx, machine)
	if err != nil || selected == nil {
		return origin{lack: err}
	}
	source, err := selected.For(version)
	return origin{source: source, early: selected.Early, lack: err}
}

// because adds to what is in the way of a version why it has no source.
func (o origin) because(list []node.Problem) []node.Problem {
	if o.lack == nil {
		return list
	}
	for i := range list {
		if list[i].Path == (node.Ref{Kind: node.VersionKind}).String() {
			list[i].Reason += "; " + o.lack.Error()
		}
	}
	return list
}

// stage has the node bring a release to its disk. Nothing there is disturbed, so nobody is kept off the node meanwhile.
func (u *update) stage(ctx context.Context) (ctrl.Result, bool, error) {
	what := strings.Join(u.plan.Stage, ", ")
	if u.mu.Status.Reason != refitv1.ReasonStaging {
		err := u.set(ctx, func(s *refitv1.MachineUpdateStatus) { // it takes a while
			s.Phase, s.Reason, s.Step, s.Message = refitv1.PhaseStaging, "", "stage", "the node fetches "+what
		})
		if err != nil {
			return ctrl.Result{}, false, err
		}
	}
	u.closed = nil // that is not what it waits for now
	status, err := u.agent.Stage(ctx, node.StageRequest{Machine: u.request.Machine, Source: *u.origin.source, WaitSeconds: stageWaitSeconds})
	var w *wait
	switch {
	case err != nil:
		if w, err = u.nodeError(ctx, err); err != nil {
			return ctrl.Result{}, false, err
		}
	case status.State == node.Staged && status.Version == u.origin.source.Version:
		return ctrl.Result{RequeueAfter: time.Millisecond}, false, nil // and the node says what else there is to do
	case status.State == node.StageFailed:
		w = &wait{reason: refitv1.ReasonStaging, message: fmt.Sprintf(
			"Kubernetes %s can't be brought to the node: %s; nothing was changed, and it is tried again; where it comes from is in KubernetesSource %s",
			status.Version, status.Message, u.origin.source.Name,
		)}
	default:
		w = &wait{
			reason: refitv1.ReasonStaging, retry: retryStage,
			message: fmt.Sprintf("the node fetches Kubernetes %s: %s", status.Version, status.Message),
		}
	}
	u.blockOn(w)
	return ctrl.Result{}, true, nil
}
