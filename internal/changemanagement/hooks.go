package changemanagement

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/handlers"
)

// Hooks asks the policies before an answer commits Cluster API to something. It reads caches only, and every replica has it.
type Hooks struct {
	Policies *Policies
	// Client reads from a cache.
	Client   client.Reader
	Clock    clock.PassiveClock
	Recorder events.EventRecorder
}

var _ handlers.Policies = (*Hooks)(nil)

// Permit implements handlers.Policies. A machine is replaced only if no policy forbids it and all are open; with whenClosed
// Refuse, the same holds for a change in place.
func (h *Hooks) Permit(ctx context.Context, namespace string, replaces bool, proposal func() (handlers.Proposal, error)) error {
	// Without a policy, an override can hold back a replacement, but nothing refuses a change in place.
	if some, err := h.Policies.Any(namespace); err != nil || !some && !replaces {
		return err
	}
	p, err := proposal()
	if err != nil {
		return err
	}
	subject, err := h.subject(ctx, p)
	if err != nil {
		return err
	}
	policies, err := h.Policies.Select(subject)
	if err != nil {
		return err
	}
	d := Decide(h.Clock.Now(), subject, policies, Change{Digest: p.Digest})
	h.overridden(ctx, subject, d.By)
	return refusal(p, d)
}

// refusal returns why a decision does not let Cluster API act on the answer, or nil.
func refusal(p handlers.Proposal, d Decision) error {
	left := strings.Join(p.Left, "; ")
	refuses := func(p *Policy) bool { return p.Refuse }
	switch i := slices.IndexFunc(d.Policies, func(p *Policy) bool { return p.Forbid }); {
	case len(p.Left) > 0 && i >= 0:
		return fmt.Errorf("policy %s forbids the replacement of %s (replacement: Forbid), and these fields can't be updated in place: %s; take the change of them back, or set replacement: Allow", d.Policies[i].Name, p.Name, left)
	case d.Open:
		return nil
	case len(p.Left) > 0:
		return fmt.Errorf("%s would be replaced, and is not now: %s; these fields can't be updated in place: %s; %s", p.Name, d.Message, left, howToBypass(p))
	case (p.Material || d.HoldsAll()) && slices.ContainsFunc(d.Policies, refuses):
		return fmt.Errorf("nothing is committed for %s now (whenClosed: Refuse): %s; %s", p.Name, d.Message, howToBypass(p))
	default:
		return nil
	}
}

// howToBypass says how to let one change go.
func howToBypass(p handlers.Proposal) string {
	return fmt.Sprintf("to let this one change go now, annotate its MachineDeployment, KubeadmControlPlane or Cluster with %s=%s", refitv1.BypassAnnotation, p.Digest)
}

// subject is the Machine that a proposal is about, or that the Machines of its MachineSet are like.
func (h *Hooks) subject(ctx context.Context, p handlers.Proposal) (*Subject, error) {
	if p.Machine != nil {
		machine := &clusterv1.Machine{ObjectMeta: *p.Machine}
		machine.Spec.ClusterName = p.Cluster
		if _, err := KeepOverrideTimes(machine); err != nil {
			return nil, err
		}
		// The cached one knows since when an override has been there.
		if err := h.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read Machine %s/%s: %w", p.Namespace, p.Name, err)
		}
		return (Subjects{h.Client}).Machine(ctx, machine)
	}
	s := &Subject{
		Namespace: p.Namespace, Cluster: p.Cluster, Role: RoleOf(p.Labels), MachineLabels: p.Labels, UID: types.UID(p.Name),
	}
	var o owner
	if name := p.Labels[clusterv1.MachineDeploymentNameLabel]; name != "" {
		o = owner{clusterv1.GroupVersion.String(), "MachineDeployment", name}
	}
	return s, (Subjects{h.Client}).complete(ctx, s, o)
}

// overridden tells about overrides that have made an answer, at the Cluster.
func (h *Hooks) overridden(ctx context.Context, s *Subject, by Overrides) {
	if len(by) == 0 {
		return
	}
	ctrl.LoggerFrom(ctx).Info("Change management is overridden", "cluster", s.Namespace+"/"+s.Cluster, "overrides", by)
	var cluster clusterv1.Cluster
	if err := h.Client.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: s.Cluster}, &cluster); err != nil {
		return // it is being deleted
	}
	for _, o := range by {
		h.Recorder.Eventf(&cluster, nil, corev1.EventTypeWarning, "ChangeManagementOverridden", "Override", "%s", Note(o.String()))
	}
}

// retryUpgrade is how long Cluster API waits before it asks again about an upgrade that is held back.
const retryUpgrade = 15 * time.Second

// Upgrade implements handlers.Policies. A part of a cluster may be upgraded when the first of its machines may be updated, by no
// policy that forbids replacement. The others wait for their own windows: each is asked about again.
func (h *Hooks) Upgrade(ctx context.Context, u handlers.Upgrade) (handlers.Progress, error) {
	subjects, err := h.subjectsOf(ctx, u)
	if err != nil {
		return handlers.Progress{}, err
	}
	digest := upgradeDigest(u)
	first, forbids, err := h.first(subjects, Change{Digest: digest})
	if err != nil {
		return handlers.Progress{}, err
	}
	h.overridden(ctx, subjects[0], first.By)
	what := fmt.Sprintf("the upgrade of the %s from %s to %s", u.Part, u.From, u.To)
	if u.From == u.To { // after a control plane, the version of the workers is not known
		what = fmt.Sprintf("the upgrade of the %s to %s", u.Part, u.To)
	}
	if forbids != nil {
		return handlers.Progress{
			Message:    fmt.Sprintf("%s is held back: policy %s forbids replacement (replacement: Forbid), and a version can't be changed in place yet; set replacement: Allow, or take the version back", what, forbids.Name),
			RetryAfter: retryUpgrade,
		}, nil
	}
	if first.Open {
		return handlers.Progress{Done: true, Message: fmt.Sprintf("%s may start: %s", what, first.Message)}, nil
	}
	retry := retryUpgrade
	if eta := time.Duration(first.NextChangeETASeconds) * time.Second; eta > 0 {
		retry = min(retry, eta)
	}
	return handlers.Progress{
		Message: fmt.Sprintf("%s is held back: %s; to let it go now: kubectl annotate cluster -n %s %s %s=%s",
			what, first.Message, u.Namespace, u.Cluster, refitv1.BypassAnnotation, digest),
		RetryAfter: retry,
	}, nil
}

// first returns the decision about the machine that may be updated first, and a policy that forbids the replacement of one.
func (h *Hooks) first(subjects []*Subject, c Change) (first *Decision, forbids *Policy, err error) {
	for _, s := range subjects {
		policies, err := h.Policies.Select(s)
		if err != nil {
			return nil, nil, err
		}
		d := Decide(h.Clock.Now(), s, policies, c)
		if first == nil || !first.Open && (d.Open || first.later(d)) {
			first = &d
		}
		if i := slices.IndexFunc(policies, func(p *Policy) bool { return p.Forbid }); i >= 0 && forbids == nil {
			forbids = policies[i]
		}
	}
	return first, forbids, nil
}

// later says whether a decision opens later than another, or never.
func (d *Decision) later(o Decision) bool {
	if d.NextChangeETASeconds < 0 || o.NextChangeETASeconds < 0 {
		return d.NextChangeETASeconds < min(o.NextChangeETASeconds, 0)
	}
	return d.NextChangeETASeconds > o.NextChangeETASeconds
}

// subjectsOf returns the machines of a part of a cluster. A part without any stands for one without labels.
func (h *Hooks) subjectsOf(ctx context.Context, u handlers.Upgrade) ([]*Subject, error) {
	role := refitv1.WorkerRole
	if u.Part == handlers.UpgradedControlPlane {
		role = refitv1.ControlPlaneRole
	}
	var list clusterv1.MachineList
	if err := h.Client.List(ctx, &list, client.InNamespace(u.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: u.Cluster}); err != nil {
		return nil, fmt.Errorf("list the Machines of Cluster %s: %w", u.Cluster, err)
	}
	// A cache has them in any order, and messages must not change by themselves.
	slices.SortFunc(list.Items, func(a, b clusterv1.Machine) int { return strings.Compare(a.Name, b.Name) })
	// The starts of clusters are spread, not those of their machines.
	uid := types.UID(u.Namespace + "/" + u.Cluster)
	var out []*Subject
	for i := range list.Items {
		if RoleOf(list.Items[i].Labels) != role {
			continue
		}
		s, err := (Subjects{h.Client}).Machine(ctx, &list.Items[i])
		if err != nil {
			return nil, err
		}
		s.UID = uid
		out = append(out, s)
	}
	if len(out) > 0 {
		return out, nil
	}
	s := &Subject{Namespace: u.Namespace, Cluster: u.Cluster, Role: role, UID: uid}
	return []*Subject{s}, (Subjects{h.Client}).complete(ctx, s, owner{})
}

// upgradeDigest identifies an upgrade of a part, for a bypass. Not all hooks know from which version, and one change has one
// digest.
func upgradeDigest(u handlers.Upgrade) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s %s %s", u.Namespace, u.Cluster, u.Part, u.To))
	return hex.EncodeToString(sum[:8])
}
