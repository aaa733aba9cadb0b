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
	"sigs.k8s.io/cluster-api/util/labels/format"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/index"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/schedule"
)

// Hooks asks the policies before an answer commits Cluster API to something. It reads caches only, and every replica has it.
type Hooks struct {
	Policies *Policies
	// Client reads from a cache.
	Client   client.Reader
	Versions Versions
	Clock    clock.PassiveClock
	Recorder events.EventRecorder
}

// Versions says to which versions of Kubernetes machines can be brought in place.
type Versions interface {
	// InPlace returns the worst that it takes on its node to bring a Machine to a version in place, or an error for people: why that can't be
	// done, or why it is not known.
	InPlace(ctx context.Context, m *clusterv1.Machine, version string) (schedule.Disruption, error)
}

// Permit implements the hooks' Policies. A machine is replaced only if no policy forbids it and all are open; with whenClosed
// Refuse, the same holds for a change in place.
func (h *Hooks) Permit(ctx context.Context, namespace string, replaces bool, proposal func() (inplace.Proposal, error)) error {
	// Without a policy, an override can hold back a replacement, but nothing refuses a change in place.
	if some, err := h.Policies.Any(namespace); err != nil || !some && !replaces {
		return err
	}
	p, err := proposal()
	if err != nil {
		return err
	}
	candidate, err := h.candidate(ctx, p)
	if err != nil {
		return err
	}
	candidate.Overrides.wantedBy(p)
	d, err := h.decide(candidate, Change{Digest: p.Digest, Class: p.Class})
	if err != nil {
		return err
	}
	h.overridden(ctx, candidate, &d)
	if err := refusal(p, d); err != nil || p.Machine != nil || len(p.Left) == 0 {
		return err
	}
	return h.permitEach(ctx, p)
}

// permitEach asks for each Machine that a MachineSet has, and that would be replaced: one may have labels and overrides of its own.
func (h *Hooks) permitEach(ctx context.Context, set inplace.Proposal) error {
	var list clusterv1.MachineList
	of := client.MatchingLabels{clusterv1.MachineSetNameLabel: format.MustFormatValue(set.Name)}
	if err := h.Client.List(ctx, &list, client.InNamespace(set.Namespace), of); err != nil {
		return fmt.Errorf("list the Machines of MachineSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	slices.SortFunc(list.Items, byMachineName)
	for i := range list.Items {
		if !list.Items[i].DeletionTimestamp.IsZero() {
			continue // it goes anyway
		}
		if err := ctx.Err(); err != nil {
			return err // nobody waits for the answer any more
		}
		candidate, err := (Candidates{h.Client}).Machine(ctx, &list.Items[i])
		if err != nil {
			return err
		}
		candidate.UID = types.UID(set.Name) // the starts of MachineSets are spread, not those of their Machines
		d, err := h.decide(candidate, Change{Digest: set.Digest, Class: set.Class})
		if err != nil {
			return err
		}
		one := set
		one.Name = list.Items[i].Name
		if err := refusal(one, d); err != nil {
			return err
		}
	}
	return nil
}

// decide decides by the policies that select a Machine, as of now.
func (h *Hooks) decide(s *Candidate, c Change) (Decision, error) {
	policies, err := h.Policies.Select(s)
	if err != nil {
		return Decision{}, err
	}
	return Decide(h.Clock.Now(), s, policies, c), nil
}

// byMachineName: a cache has Machines in any order, and messages must not change by themselves.
func byMachineName(a, b clusterv1.Machine) int { return strings.Compare(a.Name, b.Name) }

// refusal returns why a decision does not let Cluster API act on the answer, or nil.
func refusal(p inplace.Proposal, d Decision) error {
	left := strings.Join(p.Left, "; ")
	refuses := func(p *Policy) bool { return p.Refuse }
	switch i := slices.IndexFunc(d.Policies, func(p *Policy) bool { return p.Forbid }); {
	case len(p.Left) > 0 && i >= 0:
		return fmt.Errorf("policy %s forbids the replacement of %s (replacement: Forbid), and these fields can't be updated in place: %s; take the change of them back, or set replacement: Allow", d.Policies[i].Title(), p.Name, left)
	case d.Open:
		return nil
	case len(p.Left) > 0:
		return fmt.Errorf("%s would be replaced, and is not now: %s; these fields can't be updated in place: %s; %s", p.Name, d.Message, left, howToBypass(p, d))
	case (p.Material || d.HoldsAll()) && slices.ContainsFunc(d.Policies, refuses):
		return fmt.Errorf("nothing is committed for %s now (whenClosed: Refuse): %s; %s", p.Name, d.Message, howToBypass(p, d))
	default:
		return nil
	}
}

// howToBypass returns how to let one change go.
func howToBypass(p inplace.Proposal, d Decision) string {
	if how := d.HowToBypassFirm(p.Digest); how != "" {
		return how
	}
	return fmt.Sprintf("to let this one change start now, annotate its MachineDeployment, KubeadmControlPlane or Cluster with %s=%s", refitv1.BypassAnnotation, p.Digest)
}

// candidate is the Machine that a proposal is about, or that the Machines of its MachineSet are like.
func (h *Hooks) candidate(ctx context.Context, p inplace.Proposal) (*Candidate, error) {
	if p.Machine != nil {
		machine := &clusterv1.Machine{ObjectMeta: *p.Machine}
		machine.Spec.ClusterName = p.Cluster
		// The cached one is as it is now.
		if err := h.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read Machine %s/%s: %w", p.Namespace, p.Name, err)
		}
		return (Candidates{h.Client}).Machine(ctx, machine)
	}
	s := &Candidate{Subject: p.Subject, Role: RoleOf(p.Labels), UID: types.UID(p.Name)}
	var o owner
	if name := p.Labels[clusterv1.MachineDeploymentNameLabel]; name != "" {
		o = owner{clusterv1.GroupVersion.String(), "MachineDeployment", name}
	}
	return s, (Candidates{h.Client}).complete(ctx, s, o)
}

// overridden tells about overrides that have made an answer, at the Cluster.
func (h *Hooks) overridden(ctx context.Context, s *Candidate, d *Decision) {
	if len(d.By) == 0 {
		return
	}
	ctrl.LoggerFrom(ctx).Info("Change management is overridden", "cluster", s.Namespace+"/"+s.Cluster, "overrides", d.By, "passes", d.Passed)
	var cluster clusterv1.Cluster
	if err := h.Client.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: s.Cluster}, &cluster); err != nil {
		return // it is being deleted
	}
	for _, o := range d.By {
		h.Recorder.Eventf(&cluster, nil, corev1.EventTypeWarning, "ChangeManagementOverridden", "Override", "%s", policykind.Note(d.told(o)))
	}
}

// retryUpgrade is how long Cluster API waits before it asks again about an upgrade that is held back.
const retryUpgrade = 15 * time.Second

// Upgrade implements the hooks' Policies. A part of a cluster may be upgraded when the first of its machines may be updated, and none
// would have to be replaced for the version that a policy forbids to replace. The others wait for their own windows: each is asked
// about again.
func (h *Hooks) Upgrade(ctx context.Context, u inplace.Upgrade) (inplace.Progress, error) {
	machines, err := h.machinesOf(ctx, u)
	if err != nil {
		return inplace.Progress{}, err
	}
	digest := upgradeDigest(u)
	first, forbidden, err := h.first(ctx, machines, Change{Digest: digest}, u)
	if err != nil {
		return inplace.Progress{}, err
	}
	h.overridden(ctx, machines[0].candidate, first)
	what := fmt.Sprintf("the upgrade of the %s from %s to %s", u.Part, u.From, u.To)
	if u.From == u.To { // after a control plane, the version of the workers is not known
		what = fmt.Sprintf("the upgrade of the %s to %s", u.Part, u.To)
	}
	if forbidden != nil {
		return inplace.Progress{Message: fmt.Sprintf("%s is held back: %v; set replacement: Allow, or take the version back", what, forbidden), RetryAfter: retryUpgrade}, nil
	}
	if first.Open {
		return inplace.Progress{Done: true, Message: fmt.Sprintf("%s may start: %s", what, first.Message)}, nil
	}
	retry := retryUpgrade
	if eta := time.Duration(first.NextChangeETASeconds) * time.Second; eta > 0 {
		retry = min(retry, eta)
	}
	how := first.HowToBypassFirm(digest)
	if how == "" {
		how = fmt.Sprintf("to let it start now: kubectl annotate cluster -n %s %s %s=%s", u.Namespace, u.Cluster, refitv1.BypassAnnotation, digest)
	}
	return inplace.Progress{Message: fmt.Sprintf("%s is held back: %s; %s", what, first.Message, how), RetryAfter: retry}, nil
}

// upgraded is a machine of a part of a cluster that is upgraded.
type upgraded struct {
	candidate *Candidate
	// machine is nil if the part has none yet. It is shared and is not to be changed.
	machine *clusterv1.Machine
}

// first returns the decision about the machine that may be updated first, and says of one that a policy forbids to replace why it would
// have to be.
func (h *Hooks) first(ctx context.Context, machines []upgraded, c Change, u inplace.Upgrade) (first *Decision, forbidden, err error) {
	for _, m := range machines {
		d, err := h.decideUpgrade(ctx, m, c, u)
		if err != nil {
			return nil, nil, err
		}
		if first == nil || !first.Open && (d.Open || first.later(d)) {
			first = &d
		}
		if forbidden == nil {
			forbidden = h.forbidden(ctx, m.machine, d.Policies, u.To)
		}
	}
	return first, forbidden, nil
}

// decideUpgrade decides about one machine of a part. What the upgrade takes on it is looked for only where that has a say.
func (h *Hooks) decideUpgrade(ctx context.Context, m upgraded, c Change, u inplace.Upgrade) (Decision, error) {
	d, err := h.decide(m.candidate, c)
	if err != nil || !d.Scoped() {
		return d, err
	}
	c.Class = schedule.Class{Kinds: inplace.VersionKinds(u.From, u.To), Disruption: schedule.ReplaceDisruption}
	if m.machine != nil {
		c.Class.Kinds = inplace.VersionKinds(m.machine.Spec.Version, u.To)
		if takes, err := h.Versions.InPlace(ctx, m.machine, u.To); err == nil {
			c.Class.Disruption = takes
		}
	}
	if len(c.Class.Kinds) == 0 { // it has the version: what comes next is asked about by itself
		c.Class = schedule.Class{Kinds: []schedule.Kind{schedule.MinorVersionKind}, Disruption: schedule.NoDisruption}
	}
	return h.decide(m.candidate, c)
}

// forbidden says why a machine would have to be replaced for a version although a policy forbids it, or nil.
func (h *Hooks) forbidden(ctx context.Context, m *clusterv1.Machine, policies []*Policy, to string) error {
	i := slices.IndexFunc(policies, func(p *Policy) bool { return p.Forbid })
	if i < 0 || m == nil {
		return nil
	}
	if _, err := h.Versions.InPlace(ctx, m, to); err != nil {
		return fmt.Errorf("policy %s forbids replacement (replacement: Forbid), and Machine %s is not brought to the version in place: %w",
			policies[i].Title(), m.Name, err)
	}
	return nil
}

// later reports whether a decision opens later than another, or never.
func (d *Decision) later(o Decision) bool {
	if d.NextChangeETASeconds < 0 || o.NextChangeETASeconds < 0 {
		return d.NextChangeETASeconds < min(o.NextChangeETASeconds, 0)
	}
	return d.NextChangeETASeconds > o.NextChangeETASeconds
}

// machinesOf returns the machines of a part of a cluster. A part without any stands for one without labels.
func (h *Hooks) machinesOf(ctx context.Context, u inplace.Upgrade) ([]upgraded, error) {
	role := refitv1.WorkerRole
	if u.Part == inplace.UpgradedControlPlane {
		role = refitv1.ControlPlaneRole
	}
	var list clusterv1.MachineList
	if err := h.Client.List(ctx, &list, index.InCluster(u.Namespace, u.Cluster)); err != nil {
		return nil, fmt.Errorf("list the Machines of Cluster %s: %w", u.Cluster, err)
	}
	slices.SortFunc(list.Items, byMachineName)
	// The starts of clusters are spread, not those of their machines.
	uid := types.UID(u.Namespace + "/" + u.Cluster)
	var out []upgraded
	for i := range list.Items {
		if RoleOf(list.Items[i].Labels) != role {
			continue
		}
		s, err := (Candidates{h.Client}).Machine(ctx, &list.Items[i])
		if err != nil {
			return nil, err
		}
		s.UID = uid
		out = append(out, upgraded{s, &list.Items[i]})
	}
	if len(out) > 0 {
		return out, nil
	}
	s := &Candidate{Subject: inplace.Subject{Namespace: u.Namespace, Cluster: u.Cluster}, Role: role, UID: uid}
	return []upgraded{{candidate: s}}, (Candidates{h.Client}).complete(ctx, s, owner{})
}

// upgradeDigest identifies an upgrade of a part, for a bypass. Not all hooks know from which version, and one change has one
// digest.
func upgradeDigest(u inplace.Upgrade) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s %s %s", u.Namespace, u.Cluster, u.Part, u.To))
	return hex.EncodeToString(sum[:8])
}
