package changemanagement

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/schedule"
)

// everyKind is a cluster c1 with a Machine of each role, and others that have nothing to do with them.
func everyKind() []client.Object {
	return []client.Object{
		cluster("c1", nil, nil), cluster("c2", nil, nil), worker("w1"), controlPlane("cp1"),
		&controlplanev1.KubeadmControlPlane{ObjectMeta: objectMeta{Namespace: "fleet", Name: "kcp"}},
		&clusterv1.MachineDeployment{ObjectMeta: objectMeta{Namespace: "fleet", Name: "md"}},
		&clusterv1.MachineDeployment{ObjectMeta: objectMeta{Namespace: "fleet", Name: "md2"}},
	}
}

func kindName(obj client.Object) string {
	kind := map[bool]string{true: "Machine"}[false]
	switch obj.(type) {
	case *clusterv1.Cluster:
		kind = "Cluster"
	case *clusterv1.Machine:
		kind = "Machine"
	case *clusterv1.MachineDeployment:
		kind = "MachineDeployment"
	case *controlplanev1.KubeadmControlPlane:
		kind = "KubeadmControlPlane"
	}
	return kind + " " + obj.GetName()
}

func maxOverride(d string) edit { return func(s *spec) { s.MaxOverride = d } }

func TestPermissiveUntilIsBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		value    string
		since    time.Time // when it was set
		policies []*refitv1.ChangeManagementPolicy
		open     bool
		says     string
	}{
		"48 hours are the most by default":           {value: text(inside.Add(48*time.Hour + clockSkew)), policies: some(never("a")), open: true},
		"more than that is ignored, and said so":     {value: text(inside.Add(48*time.Hour + clockSkew + time.Second)), policies: some(never("a")), says: "is ignored: the policies allow at most 48h0m0s ahead"},
		"a policy may allow less":                    {value: text(inside.Add(2 * time.Hour)), policies: some(never("a", maxOverride("1h"))), says: "allow at most 1h0m0s ahead"},
		"a policy may allow more":                    {value: text(inside.Add(100 * time.Hour)), policies: some(never("a", maxOverride("101h"))), open: true},
		"the least of the policies counts":           {value: text(inside.Add(2 * time.Hour)), policies: some(never("a", maxOverride("100h")), never("b", maxOverride("1h")), never("c")), says: "allow at most 1h0m0s ahead"},
		"too far ahead when it was set stays so":     {value: text(inside.Add(time.Hour)), since: inside.Add(-72 * time.Hour), policies: some(never("a")), says: "allow at most 48h0m0s ahead"},
		"clocks that differ do not matter":           {value: text(inside.Add(time.Hour)), since: inside.Add(-47*time.Hour - 30*time.Second), policies: some(never("a")), open: true},
		"true counts from when it was set":           {value: "true", since: inside.Add(-47 * time.Hour), policies: some(never("a")), open: true},
		"true is over after the most":                {value: "true", since: inside.Add(-48 * time.Hour), policies: some(never("a")), says: "has been there for longer than 48h0m0s"},
		"true by the least of the policies":          {value: "true", since: inside.Add(-2 * time.Hour), policies: some(never("a"), never("b", maxOverride("1h"))), says: "has been there for longer than 1h0m0s"},
		"a time that is over is not worth a word":    {value: text(inside.Add(-time.Hour)), policies: some(never("a"))},
		"what is neither a time nor true is ignored": {value: "yes", policies: some(never("a")), says: `is ignored: it is neither a time`},
		"a time without a zone is ignored":           {value: "2026-10-03T22:00:00", policies: some(never("a")), says: `is ignored: it is neither a time`},
		"TRUE is not true":                           {value: "TRUE", since: inside, policies: some(never("a")), says: `is ignored: it is neither a time`},
		"another zone is the same instant":           {value: inside.Add(time.Minute).In(time.FixedZone("", 7200)).Format(time.RFC3339), policies: some(never("a")), open: true},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{permissiveKey: tc.value}
			if !tc.since.IsZero() {
				annotations[refitv1.PermissiveSinceAnnotation] = text(tc.since) + " " + tc.value
			}
			d := Decide(inside, &Candidate{Overrides: overrides(annotations)}, read(tc.policies...), Change{})
			requireTold(t, d)
			require.Equal(t, tc.open, d.Open, d.Message)
			if !tc.open {
				require.Equal(t, schedule.Paused, d.Reason)
				require.Empty(t, d.By)
			}
			if tc.says == "" {
				require.NotContains(t, d.Message, "ignored")
			} else {
				require.Contains(t, d.Message, "permissive-until="+tc.value+" on Cluster c1")
				require.Contains(t, d.Message, tc.says)
			}
		})
	}
}

func TestTheLatestOfMoreOverridesCounts(t *testing.T) {
	var o Overrides
	for hours, kind := range map[int]string{1: "Cluster", 3: "MachineDeployment", 2: "Machine"} {
		o.read(kind, cluster("c1", nil, map[string]string{permissiveKey: text(inside.Add(time.Duration(hours) * time.Hour))}))
	}
	d := Decide(inside, &Candidate{Overrides: o}, read(never("a")), Change{})
	require.Contains(t, d.Message, "permissive until "+text(inside.Add(3*time.Hour)))
	require.Len(t, d.By, 3)
}

// TestTheMostRestrictiveObjectCounts: what is stopped on one object is not started by what was left on another.
func TestTheMostRestrictiveObjectCounts(t *testing.T) {
	hours := func(n int) string { return text(inside.Add(time.Duration(n) * time.Hour)) }
	s := &Candidate{}
	s.Overrides.read("Cluster", cluster("c1", nil, map[string]string{restrictiveKey: hours(1), restrictiveKey + "-reason": "incident 7"}))
	s.Overrides.read("Machine", cluster("m1", nil, map[string]string{permissiveKey: hours(2)}))
	policies := read(weekly("a", "WE"))
	for at, open := range map[time.Duration]bool{0: false, time.Hour - time.Second: false, time.Hour: true, 2*time.Hour - time.Second: true, 2 * time.Hour: false} {
		d := Decide(inside.Add(at), s, policies, Change{Digest: "d1"})
		require.Equal(t, open, d.Open, at)
		if at == 0 {
			require.EqualValues(t, 3600, d.NextChangeETASeconds)
		}
	}

	s.Overrides.read("Machine", cluster("m1", nil, map[string]string{bypassKey: "d1"}))
	d := Decide(inside, s, policies, Change{Digest: "d1"})
	require.True(t, d.Open)
	require.Len(t, d.By, 1)
	require.Len(t, d.Passed, 1)
	require.Contains(t, d.Message, "bypass-change-management=d1 on Machine m1, which passes restrictive-until="+hours(1)+" on Cluster c1 (incident 7)")
	require.False(t, Decide(inside, s, policies, Change{Digest: "d2"}).Open, "another change")
}

func TestAnOverrideIsNotedBeforeItIsInForce(t *testing.T) {
	hour := text(inside.Add(time.Hour))
	for note, open := range map[string]bool{
		"":                              false,
		text(inside) + " " + hour:       true,
		text(inside) + " true":          false, // it was of another value
		text(inside):                    false,
		"a moment ago " + hour:          false,
		text(inside) + "  " + hour:      false,
		text(inside) + " " + hour + " ": false,
	} {
		c := &clusterv1.Cluster{ObjectMeta: objectMeta{Name: "c1", Annotations: map[string]string{permissiveKey: hour, refitv1.PermissiveSinceAnnotation: note}}}
		var o Overrides
		o.read("Cluster", c)
		d := Decide(inside, &Candidate{Overrides: o}, read(never("a")), Change{})
		require.Equal(t, open, d.Open, note)
		if !open {
			require.Contains(t, d.Message, "is not in force yet: refit's leader has not noted yet since when it is there")
		}
	}
}

// managed are the managed fields of an object with an annotation that was set at an instant.
func managed(at time.Time, annotation string) []metav1.ManagedFieldsEntry {
	fields := &metav1.FieldsV1{}
	fields.SetRawString(`{"f:metadata":{"f:annotations":{".":{},"f:` + annotation + `":{}}}}`)
	return []metav1.ManagedFieldsEntry{{Manager: "kubectl-annotate", Time: &metav1.Time{Time: at}, FieldsV1: fields}}
}

func TestChangesThatAreWantedLater(t *testing.T) {
	wanted := func(value string) *Candidate {
		return &Candidate{Overrides: Overrides{{Kind: "not-before", Object: "MachineDeployment md", Value: value}}}
	}
	d := Decide(inside, wanted(text(inside.Add(time.Hour))), nil, Change{Digest: "x"})
	require.False(t, d.Open)
	require.Equal(t, schedule.NotBefore, d.Reason)
	require.Contains(t, d.Message, "not-before="+text(inside.Add(time.Hour))+" on MachineDeployment md")
	require.True(t, d.HoldsAll(), "what disturbs no node is wanted later, too")
	require.Empty(t, d.By, "it overrides nothing")
	require.EqualValues(t, 3600, d.NextChangeETASeconds)

	d = Decide(inside.Add(time.Hour), wanted(text(inside.Add(time.Hour))), nil, Change{Digest: "x"})
	require.True(t, d.Open)
	require.Equal(t, schedule.Open, d.Reason)

	for _, value := range []string{"true", "", "tomorrow", "2026-10-03"} {
		d = Decide(inside, wanted(value), nil, Change{Digest: "x"})
		require.False(t, d.Open, "%q", value)
		require.Contains(t, d.Message, "is not a time", "%q", value)
	}
	both := wanted(text(inside.Add(time.Hour)))
	both.Overrides = append(both.Overrides, Override{Kind: "not-before", Object: "Machine m", Value: text(inside.Add(2 * time.Hour))},
		Override{Kind: "bypass-change-management", Object: "Machine m", Value: "y"})
	require.EqualValues(t, 7200, Decide(inside, both, nil, Change{Digest: "x"}).NextChangeETASeconds, "the latest counts")
	require.True(t, Decide(inside, both, nil, Change{Digest: "y"}).Open, "a bypass of the very change passes it")
}
