package changemanagement

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/policykind"
)

func refuses(s *spec) { s.WhenClosed = refitv1.RefuseWhenClosed }
func forbids(s *spec) { s.Replacement = refitv1.ForbidReplacement }
func holds(s *spec)   { s.Hold = refitv1.HoldAll }

// propose is a change of the Machine w1 that can be made in place and disturbs the node.
func propose(edits ...func(*inplace.Proposal)) inplace.Proposal {
	m := worker("w1")
	p := inplace.Proposal{Subject: inplace.SubjectOf(m), Name: m.Name, Machine: &m.ObjectMeta, Digest: "d1", Material: true}
	for _, e := range edits {
		e(&p)
	}
	return p
}

// replacing has the change replace the Machine.
func replacing(p *inplace.Proposal) {
	p.Left = []string{"spec.version of the Machine: no updater covers it", "spec.users of the KubeadmConfig: no updater covers it"}
}

func immaterial(p *inplace.Proposal) { p.Material = false }

// ofMachineSet has the change be one of a MachineSet.
func ofMachineSet(p *inplace.Proposal) { p.Machine, p.Name = nil, "md-abc" }

// permit asks, and reports whether the proposal was asked for.
func (w *world) permit(p inplace.Proposal) (asked bool, err error) {
	err = w.hooks.Permit(w.T.Context(), p.Namespace, len(p.Left) > 0, func() (inplace.Proposal, error) {
		asked = true
		return p, nil
	})
	return asked, err
}

func TestPermit(t *testing.T) {
	fields := []string{"spec.version of the Machine", "spec.users of the KubeadmConfig"}
	untilNextWindow := "opens at " + text(opened)
	for name, tc := range map[string]struct {
		policies []*refitv1.ChangeManagementPolicy
		proposal inplace.Proposal
		now      time.Time // outside, unless it is given
		cluster  map[string]string
		says     []string // nothing: Cluster API may go on
	}{
		"Hold accepts while it is closed":                   {policies: some(saturdays("a")), proposal: propose()},
		"Refuse refuses what disturbs the node":             {policies: some(saturdays("a", refuses)), proposal: propose(), says: []string{"nothing is committed for w1 now (whenClosed: Refuse)", "policy a", untilNextWindow, bypassKey + "=d1"}},
		"Refuse accepts while it is open":                   {policies: some(saturdays("a", refuses)), proposal: propose(), now: inside},
		"Refuse accepts what does not disturb the node":     {policies: some(saturdays("a", refuses)), proposal: propose(immaterial)},
		"Refuse that holds all refuses that, too":           {policies: some(saturdays("a", refuses, holds)), proposal: propose(immaterial), says: []string{"nothing is committed"}},
		"Refuse that holds all accepts it while it is open": {policies: some(saturdays("a", refuses, holds)), proposal: propose(immaterial), now: inside},
		"Refuse of one policy is enough":                    {policies: some(saturdays("a"), anytime("b", refuses)), proposal: propose(), says: []string{"nothing is committed", "policy a"}},
		"Refuse of an invalid policy":                       {policies: some(onMars("a", refuses)), proposal: propose(), now: inside, says: []string{"nothing is committed", "policy a is invalid"}},
		"Refuse waits for the jitter":                       {policies: some(saturdays("a", refuses, jitter("8h"))), proposal: propose(), now: opened, says: []string{"nothing is committed", "jitter"}},
		"Refuse of a bypassed change":                       {policies: some(saturdays("a", refuses)), proposal: propose(), cluster: map[string]string{bypassKey: "d0,d1"}},
		"Refuse of a change when another is bypassed":       {policies: some(saturdays("a", refuses)), proposal: propose(), cluster: map[string]string{bypassKey: "d2"}, says: []string{"nothing is committed"}},
		"Refuse of a Cluster that is permissive":            {policies: some(saturdays("a", refuses)), proposal: propose(), cluster: map[string]string{permissiveKey: text(outside.Add(time.Hour))}},
		"Refuse of a Cluster that is restrictive":           {policies: some(anytime("a", refuses)), proposal: propose(), cluster: map[string]string{restrictiveKey: "true"}, says: []string{"nothing is committed", "restrictive-until=true on Cluster c1"}},
		"Refuse for other Machines":                         {policies: some(never("a", refuses, roles(refitv1.ControlPlaneRole))), proposal: propose()},

		"Forbid refuses a replacement while it is open":   {policies: some(anytime("a", forbids)), proposal: propose(replacing), says: append(fields, "policy a forbids the replacement of w1")},
		"Forbid refuses a replacement while it is closed": {policies: some(never("a", forbids)), proposal: propose(replacing), says: append(fields, "policy a forbids")},
		"Forbid refuses a replacement that is bypassed":   {policies: some(never("a", forbids)), proposal: propose(replacing), cluster: map[string]string{bypassKey: "d1"}, says: append(fields, "policy a forbids")},
		"Forbid of one policy is enough":                  {policies: some(anytime("a"), anytime("b", forbids)), proposal: propose(replacing), says: append(fields, "policy b forbids")},
		"Forbid of an invalid policy":                     {policies: some(onMars("a", forbids)), proposal: propose(replacing), says: append(fields, "policy a forbids")},
		"Forbid accepts what can be made in place":        {policies: some(anytime("a", forbids)), proposal: propose()},

		"Allow has it replaced while it is open":        {policies: some(saturdays("a")), proposal: propose(replacing), now: inside},
		"Allow withholds it while it is closed":         {policies: some(saturdays("a")), proposal: propose(replacing), says: append(fields, "w1 would be replaced, and is not now", untilNextWindow, bypassKey+"=d1")},
		"Allow withholds it while one of two is closed": {policies: some(saturdays("a"), anytime("b")), proposal: propose(replacing), says: append(fields, "policy a", untilNextWindow)},
		"Allow of an invalid policy":                    {policies: some(onMars("a")), proposal: propose(replacing), now: inside, says: append(fields, "policy a is invalid")},
		"Allow has it replaced when it is bypassed":     {policies: some(saturdays("a")), proposal: propose(replacing), cluster: map[string]string{bypassKey: "d1"}},
		"Allow withholds it when another is bypassed":   {policies: some(saturdays("a")), proposal: propose(replacing), cluster: map[string]string{bypassKey: "d2"}, says: fields},

		"no policy":          {proposal: propose()},
		"no policy replaces": {proposal: propose(replacing)},
		"no policy, of a Cluster that is restrictive":     {proposal: propose(), cluster: map[string]string{restrictiveKey: "true"}},
		"no policy replaces not in a restrictive Cluster": {proposal: propose(replacing), cluster: map[string]string{restrictiveKey: "true"}, says: append(fields, "restrictive-until=true on Cluster c1")},

		"a MachineSet is refused":                          {policies: some(saturdays("a", refuses)), proposal: propose(ofMachineSet), says: []string{"nothing is committed for md-abc now", untilNextWindow}},
		"a MachineSet is not replaced":                     {policies: some(saturdays("a")), proposal: propose(ofMachineSet, replacing), says: append(fields, "md-abc would be replaced")},
		"a MachineSet by the labels that its Machines get": {policies: some(never("a", refuses, machines(map[string]string{clusterv1.MachineDeploymentNameLabel: "md"}))), proposal: propose(ofMachineSet), says: []string{"nothing is committed"}},
		"a MachineSet of other Machines":                   {policies: some(never("a", refuses, machines(map[string]string{clusterv1.MachineDeploymentNameLabel: "md2"}))), proposal: propose(ofMachineSet)},
		"a MachineSet is no control plane":                 {policies: some(never("a", refuses, roles(refitv1.ControlPlaneRole))), proposal: propose(ofMachineSet)},
		"a MachineSet is bypassed by its Cluster":          {policies: some(saturdays("a", refuses)), proposal: propose(ofMachineSet), cluster: map[string]string{bypassKey: "d1"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{cluster("c1", nil, tc.cluster), worker("w1")}
			for _, p := range tc.policies {
				objects = append(objects, p)
			}
			w := newWorld(t, objects...)
			w.Clock.SetTime(outside)
			if !tc.now.IsZero() {
				w.Clock.SetTime(tc.now)
			}
			_, err := w.permit(tc.proposal)
			if tc.says == nil {
				require.NoError(t, err)
			}
			for _, says := range tc.says {
				require.ErrorContains(t, err, says)
			}
			_, again := w.permit(tc.proposal)
			require.Equal(t, err, again, "it says the same again")
		})
	}
}

// TestAMachineSetIsAskedAboutForEachMachine that would be replaced: a Machine may have labels and overrides that others have not.
func TestAMachineSetIsAskedAboutForEachMachine(t *testing.T) {
	ofSet := func(set string) func(*clusterv1.Machine) {
		return func(m *clusterv1.Machine) { m.Labels[clusterv1.MachineSetNameLabel] = set }
	}
	gold := machines(map[string]string{"pool": "gold"})
	deleted := func(m *clusterv1.Machine) {
		m.DeletionTimestamp, m.Finalizers = &metav1.Time{Time: inside}, []string{clusterv1.MachineFinalizer}
	}
	for name, tc := range map[string]struct {
		machine  *clusterv1.Machine
		policy   *refitv1.ChangeManagementPolicy
		proposal inplace.Proposal
		says     string
	}{
		"one is held back":            {worker("w2", ofSet("md-abc"), annotated(restrictiveKey, "true")), nil, propose(ofMachineSet, replacing), "w2 would be replaced, and is not now"},
		"one must not be replaced":    {worker("w2", ofSet("md-abc"), ofPool("gold")), anytime("a", forbids, gold), propose(ofMachineSet, replacing), "forbids the replacement of w2"},
		"one is in no window":         {worker("w2", ofSet("md-abc"), ofPool("gold")), never("a", gold), propose(ofMachineSet, replacing), "w2 would be replaced, and is not now"},
		"one that is being deleted":   {worker("w2", ofSet("md-abc"), annotated(restrictiveKey, "true"), deleted), nil, propose(ofMachineSet, replacing), ""},
		"one of another MachineSet":   {worker("w2", ofSet("md-def"), annotated(restrictiveKey, "true")), nil, propose(ofMachineSet, replacing), ""},
		"none is replaced":            {worker("w2", ofSet("md-abc"), annotated(restrictiveKey, "true")), nil, propose(ofMachineSet), ""},
		"another change of a Machine": {worker("w2", ofSet("md-abc"), annotated(restrictiveKey, "true")), nil, propose(replacing), ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{cluster("c1", nil, nil), worker("w1", ofSet("md-abc")), tc.machine}
			if tc.policy != nil {
				objects = append(objects, tc.policy)
			}
			_, err := newWorld(t, objects...).permit(tc.proposal)
			if tc.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.says)
		})
	}
}

func TestPermitAsksForAProposalOnlyIfItMatters(t *testing.T) {
	for name, tc := range map[string]struct {
		policies []client.Object
		proposal inplace.Proposal
		asked    bool
	}{
		"no policies":                      {nil, propose(), false},
		"policies of another namespace":    {[]client.Object{of("other", never("a", refuses))}, propose(), false},
		"no policies, but it is replaced":  {nil, propose(replacing), true},
		"policies, even of other Machines": {[]client.Object{anytime("a", roles(refitv1.ControlPlaneRole))}, propose(), true},
	} {
		t.Run(name, func(t *testing.T) {
			asked, err := newWorld(t, append(tc.policies, cluster("c1", nil, nil), worker("w1"))...).permit(tc.proposal)
			require.NoError(t, err)
			require.Equal(t, tc.asked, asked)
		})
	}
}

func TestPermitNeedsToKnow(t *testing.T) {
	w := newWorld(t, cluster("c1", nil, nil), worker("w1"), never("a"))
	err := w.hooks.Permit(t.Context(), "fleet", false, func() (inplace.Proposal, error) { return inplace.Proposal{}, errDown })
	require.ErrorIs(t, err, errDown)
	_, err = w.permit(propose(func(p *inplace.Proposal) { p.Cluster, p.Machine = "gone", nil }))
	require.ErrorContains(t, err, "Cluster fleet/gone")
	w.hooks.Policies = NewPolicies(nil, nil, nil)
	_, err = w.permit(propose())
	require.ErrorIs(t, err, policykind.ErrUnread)
	w.hooks.Policies, w.hooks.Client = w.policies, broken{}
	_, err = w.permit(propose())
	require.ErrorIs(t, err, errDown)
}

func TestOverridesOfAProposal(t *testing.T) {
	hour := text(outside.Add(time.Hour))
	for name, tc := range map[string]struct {
		object, annotation, value string
		proposal                  inplace.Proposal
		open                      bool
	}{
		"of the MachineDeployment of a MachineSet": {"MachineDeployment md", permissiveKey, hour, propose(ofMachineSet), true},
		"of another MachineDeployment":             {"MachineDeployment md2", permissiveKey, hour, propose(ofMachineSet), false},
		"a bypass on the MachineDeployment":        {"MachineDeployment md", bypassKey, "d1", propose(ofMachineSet), true},
		"of one Machine is not of its MachineSet":  {"Machine w1", permissiveKey, hour, propose(ofMachineSet), false},
		"of the Machine":                           {"Machine w1", permissiveKey, hour, propose(), true},
		"of the Machine's MachineDeployment":       {"MachineDeployment md", permissiveKey, hour, propose(), true},
		"that nobody has set but the one who asks": {"", "", "", propose(func(p *inplace.Proposal) { p.Machine.Annotations = map[string]string{permissiveKey: hour} }), false},
		"of a Machine that the cache does not know yet": {"", "", "", propose(func(p *inplace.Proposal) {
			p.Machine.Name, p.Name = "w9", "w9"
			p.Machine.Annotations = noted(map[string]string{permissiveKey: hour})
		}), true},
		"that is not noted yet": {"", "", "", propose(func(p *inplace.Proposal) {
			p.Machine.Name, p.Name = "w9", "w9"
			p.Machine.Annotations = map[string]string{permissiveKey: hour}
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			all := everyKind()
			for _, obj := range all {
				if kindName(obj) == tc.object {
					obj.SetAnnotations(noted(map[string]string{tc.annotation: tc.value}))
				}
			}
			w := newWorld(t, append(all, saturdays("a", refuses))...)
			w.Clock.SetTime(outside)
			_, err := w.permit(tc.proposal)
			require.Equal(t, tc.open, err == nil, err)
			if tc.open {
				w.RequireEvent("ChangeManagementOverridden")
			}
			w.RequireNoEvent()
		})
	}
}

// TestWhatATemplateWantsLaterIsNotReplacedNow demands that an instant counts from when the template has it: it is not on the Machines that are replaced.
func TestWhatATemplateWantsLaterIsNotReplacedNow(t *testing.T) {
	later := text(inside.Add(time.Hour))
	wants := func(value string) func(*inplace.Proposal) {
		return func(p *inplace.Proposal) { p.Annotations = map[string]string{refitv1.NotBeforeAnnotation: value} }
	}
	for name, tc := range map[string]struct {
		proposal inplace.Proposal
		policies []*refitv1.ChangeManagementPolicy
		says     string
	}{
		"a replacement without a policy":     {propose(replacing, ofMachineSet, wants(later)), nil, "not wanted before " + later + "; opens at " + later + "; not-before=" + later + " on the template of MachineSet md-abc"},
		"of a Machine":                       {propose(replacing, wants(later)), nil, "not-before=" + later + " on Machine w1"},
		"in a window":                        {propose(replacing, ofMachineSet, wants(later)), some(saturdays("a")), "not wanted before " + later},
		"one that can't be read":             {propose(replacing, ofMachineSet, wants("next week")), nil, "correct it, or take it away"},
		"one that is over":                   {propose(replacing, ofMachineSet, wants(text(inside))), some(saturdays("a")), ""},
		"in place, where nothing is refused": {propose(ofMachineSet, wants(later)), some(saturdays("a")), ""},
		"in place, where that is refused":    {propose(ofMachineSet, wants(later)), some(saturdays("a", refuses)), "nothing is committed for md-abc now (whenClosed: Refuse): not wanted before " + later},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cluster("c1", nil, nil), worker("w1"))
			w.add(tc.policies...)
			_, err := w.permit(tc.proposal)
			if tc.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.says)
		})
	}
}
