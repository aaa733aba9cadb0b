package machineupdate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/skew"
)

// bringsVersion reports whether a plan brings another version of Kubernetes, or would if nothing were in the way.
func bringsVersion(plan node.Plan) bool {
	ref := node.Ref{Kind: node.VersionKind}
	return slices.ContainsFunc(plan.Changes, func(c node.Change) bool { return c.Kind == node.VersionKind }) ||
		slices.ContainsFunc(plan.Blocked, func(p node.Problem) bool { return p.Path == ref.String() })
}

// skewed returns what another version waits for: that the rest of the cluster runs versions which Kubernetes supports together with it.
// All API servers are asked about, since who asks one of them through a load balancer learns of one only. What can't be read is in the
// way as well. Nothing of it is asked for work that runs on the node, or has run there: that is taken to its end.
func (u *update) skewed(ctx context.Context, plan node.Plan) (*wait, error) {
	if !bringsVersion(plan) || !u.seen.Last.Begins() {
		return nil, nil
	}
	want := u.regarding.Spec.Version
	broken, err := u.skewBroken(ctx, want)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	message := "would break Kubernetes' version skew policy (https://kubernetes.io/releases/version-skew-policy): " + strings.Join(broken, "; ")
	switch {
	case err != nil && len(plan.Blocked) > 0: // which is known, and says what to do
		return nil, nil
	case err != nil:
		message = "waits until it is known which versions the rest of the cluster runs: " + err.Error()
	case len(broken) == 0:
		return nil, nil
	}
	return &wait{
		reason: refitv1.ReasonSkew, retry: retryNode,
		// A node that was drained meanwhile is of use again until then. What is not known may be known in a moment.
		releases: err == nil && u.mu.Status.ApplyingSince == nil,
		message:  fmt.Sprintf("Kubernetes %s on this node %s; refit looks again by itself", want, message),
	}, nil
}

// mostBroken is how many nodes a message names that are in the way.
const mostBroken = 5

// skewBroken returns what would break the policy, for people. An error says what is not known.
func (u *update) skewBroken(ctx context.Context, want string) ([]string, error) {
	to, err := skew.Parse(want)
	if err != nil {
		return nil, err
	}
	v := &versions{update: u}
	if err := v.readAPIServers(ctx); err != nil {
		return nil, err
	}
	change := skew.Change{Name: v.own, To: to, ControlPlane: changemanagement.RoleOf(u.regarding.Labels) == refitv1.ControlPlaneRole}
	if change.From, err = v.from(ctx, change.ControlPlane); err != nil {
		return nil, err
	}
	cluster, err := v.cluster(ctx, change)
	if err != nil {
		return nil, err
	}
	broken := change.Check(cluster)
	if more := len(broken) - mostBroken; more > 0 {
		broken = append(broken[:mostBroken], fmt.Sprintf("and %d more", more))
	}
	return broken, nil
}

// lowest returns the oldest of versions, with the name of where it is from. Without any it is nil.
func lowest(versions map[string]*version.Version) (source string, v *version.Version) {
	for name, other := range versions {
		if v == nil || other.LessThan(v) || other.EqualTo(v) && name < source {
			source, v = name, other
		}
	}
	return source, v
}
