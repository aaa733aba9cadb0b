package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/inplace"
)

// Lifecycle answers the hooks that hold the version upgrade of a ClusterClass cluster back before anything is touched: the
// control plane by the policies of its machines, the workers by those of theirs.
type Lifecycle struct {
	policies Policies
	scope    Scope
}

// NewLifecycle returns handlers that ask the policies.
func NewLifecycle(policies Policies, scope Scope) *Lifecycle {
	return &Lifecycle{policies: policies, scope: scope}
}

// LifecycleHook is one of the hooks.
type LifecycleHook struct {
	// Hook is the function that Cluster API's catalog knows it by, and Name that of its handler.
	Hook runtimecatalog.Hook
	Name string
	// Handle answers a request.
	Handle func(ctx context.Context, body []byte) runtimehooksv1.ResponseObject
}

// Hooks returns the hooks, in the order in which Cluster API calls them.
func (h *Lifecycle) Hooks() []LifecycleHook {
	return []LifecycleHook{
		{runtimehooksv1.BeforeClusterUpgrade, "before-cluster-upgrade", h.handle("BeforeClusterUpgrade",
			func() runtimehooksv1.RetryResponseObject { return &runtimehooksv1.BeforeClusterUpgradeResponse{} }, beforeControlPlane)},
		{runtimehooksv1.BeforeControlPlaneUpgrade, "before-control-plane-upgrade", h.handle("BeforeControlPlaneUpgrade",
			func() runtimehooksv1.RetryResponseObject { return &runtimehooksv1.BeforeControlPlaneUpgradeResponse{} }, beforeControlPlane)},
		{runtimehooksv1.AfterControlPlaneUpgrade, "after-control-plane-upgrade", h.handle("AfterControlPlaneUpgrade",
			func() runtimehooksv1.RetryResponseObject { return &runtimehooksv1.AfterControlPlaneUpgradeResponse{} }, afterControlPlane)},
		{runtimehooksv1.BeforeWorkersUpgrade, "before-workers-upgrade", h.handle("BeforeWorkersUpgrade",
			func() runtimehooksv1.RetryResponseObject { return &runtimehooksv1.BeforeWorkersUpgradeResponse{} }, beforeWorkers)},
		{runtimehooksv1.AfterWorkersUpgrade, "after-workers-upgrade", h.handle("AfterWorkersUpgrade",
			func() runtimehooksv1.RetryResponseObject { return &runtimehooksv1.AfterWorkersUpgradeResponse{} }, afterWorkers)},
	}
}

// upgradeRequest is what the requests of the hooks have, as far as it matters here.
type upgradeRequest struct {
	metav1.TypeMeta `json:",inline"`

	Cluster struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	} `json:"cluster"`
	From string `json:"fromKubernetesVersion"`
	To   string `json:"toKubernetesVersion"`
	// Reached is the version of the step that has ended, in the hooks that come after one.
	Reached       string                           `json:"kubernetesVersion"`
	ControlPlanes []runtimehooksv1.UpgradeStepInfo `json:"controlPlaneUpgrades"`
	Workers       []runtimehooksv1.UpgradeStepInfo `json:"workersUpgrades"`
}

// step is a part that comes next, and the version that it is brought to. Without a part nothing comes.
type step struct {
	part inplace.UpgradedPart
	to   string
}

func beforeControlPlane(r *upgradeRequest) step {
	return step{inplace.UpgradedControlPlane, first(r.ControlPlanes, r.To)}
}

func beforeWorkers(r *upgradeRequest) step {
	return step{inplace.UpgradedWorkers, first(r.Workers, r.To)}
}

// afterControlPlane returns the workers if they follow to the version that the control plane has reached, else the next step
// of the control plane.
func afterControlPlane(r *upgradeRequest) step {
	if slices.Contains(r.Workers, runtimehooksv1.UpgradeStepInfo{Version: r.Reached}) {
		return step{inplace.UpgradedWorkers, r.Reached}
	}
	return afterWorkers(r)
}

func afterWorkers(r *upgradeRequest) step {
	if len(r.ControlPlanes) == 0 {
		return step{}
	}
	return step{inplace.UpgradedControlPlane, first(r.ControlPlanes, "")}
}

func first(steps []runtimehooksv1.UpgradeStepInfo, otherwise string) string {
	if len(steps) > 0 {
		return steps[0].Version
	}
	return otherwise
}

// mostHeld is how long Cluster API waits at most before it asks again, whatever the estimate: so that an override is noticed.
const mostHeld = time.Minute

func (h *Lifecycle) handle(hook string, newResponse func() runtimehooksv1.RetryResponseObject, next func(*upgradeRequest) step) func(context.Context, []byte) runtimehooksv1.ResponseObject {
	return func(ctx context.Context, body []byte) runtimehooksv1.ResponseObject {
		response := newResponse()
		response.GetObjectKind().SetGroupVersionKind(runtimehooksv1.GroupVersion.WithKind(hook + "Response"))
		progress, err := h.decide(ctx, hook, body, next)
		if err != nil {
			response.SetStatus(runtimehooksv1.ResponseStatusFailure)
			response.SetMessage(err.Error())
			return response
		}
		response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
		response.SetMessage(progress.Message)
		if !progress.Done {
			// 0 would let the upgrade go on.
			response.SetRetryAfterSeconds(int32(max(1, math.Ceil(min(progress.RetryAfter, mostHeld).Seconds()))))
		}
		return response
	}
}

func (h *Lifecycle) decide(ctx context.Context, hook string, body []byte, next func(*upgradeRequest) step) (inplace.Progress, error) {
	var r upgradeRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return inplace.Progress{}, &RequestError{Problem: "can't be read: " + err.Error()}
	}
	if want := hook + "Request"; r.Kind != want {
		return inplace.Progress{}, &RequestError{Field: "kind", Problem: fmt.Sprintf("is %q and should be %q", r.Kind, want)}
	}
	if r.Cluster.Metadata.Name == "" || r.Cluster.Metadata.Namespace == "" {
		return inplace.Progress{}, &RequestError{Field: "cluster.metadata", Problem: "has no name or no namespace"}
	}
	if tooLong(r.Cluster.Metadata.Name, r.Cluster.Metadata.Namespace, r.From, r.To, r.Reached) || slices.ContainsFunc(
		slices.Concat(r.ControlPlanes, r.Workers), func(s runtimehooksv1.UpgradeStepInfo) bool { return tooLong(s.Version) }) {
		return inplace.Progress{}, &RequestError{Problem: fmt.Sprintf("has a name or a version of more than %d bytes", maxObjectName)}
	}
	if err := h.scope.check(r.Cluster.Metadata.Namespace); err != nil {
		return inplace.Progress{}, err
	}
	s := next(&r)
	if s.part == "" {
		return inplace.Progress{Done: true, Message: "nothing more is to be upgraded"}, nil
	}
	from := r.From
	if from == "" {
		from = r.Reached
	}
	u := inplace.Upgrade{Namespace: r.Cluster.Metadata.Namespace, Cluster: r.Cluster.Metadata.Name, Part: s.part, From: from, To: s.to}
	p, err := h.policies.Upgrade(ctx, u)
	if err != nil {
		// Not Failure: that would hide the message from the Cluster's condition.
		ctrl.LoggerFrom(ctx).Error(err, "Could not ask the policies", "cluster", u.Namespace+"/"+u.Cluster)
		return inplace.Progress{Message: "the policies of the " + string(u.Part) + " could not be read; trying again", RetryAfter: recordRetry}, nil
	}
	return p, nil
}
