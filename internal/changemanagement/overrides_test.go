package changemanagement

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
		"48 hours are the most by default":           {value: text(inside.Add(48 * time.Hour)), policies: some(never("a")), open: true},
		"more than that is ignored, and said so":     {value: text(inside.Add(48*time.Hour + time.Second)), policies: some(never("a")), says: "is ignored: the policies allow at most 48h0m0s ahead"},
		"a policy may allow less":                    {value: text(inside.Add(2 * time.Hour)), policies: some(never("a", maxOverride("1h"))), says: "allow at most 1h0m0s ahead"},
		"a policy may allow more":                    {value: text(inside.Add(100 * time.Hour)), policies: some(never("a", maxOverride("101h"))), open: true},
		"the least of the policies counts":           {value: text(inside.Add(2 * time.Hour)), policies: some(never("a", maxOverride("100h")), never("b", maxOverride("1h")), never("c")), says: "allow at most 1h0m0s ahead"},
		"too far ahead when it was set stays so":     {value: text(inside.Add(time.Hour)), since: inside.Add(-72 * time.Hour), policies: some(never("a")), says: "allow at most 48h0m0s ahead"},
		"clocks that differ do not matter":           {value: text(inside.Add(time.Hour)), since: inside.Add(-47*time.Hour - 30*time.Second), policies: some(never("a")), open: true},
		"true counts from when it was set":           {value: "true", since: inside.Add(-47 * time.Hour), policies: some(never("a")), open: true},
		"true is over after the most":                {value: "true", since: inside.Add(-48 * time.Hour), policies: some(never("a")), says: "has been there for longer than 48h0m0s"},
		"true by the least of the policies":          {value: "true", since: inside.Add(-2 * time.Hour), policies: some(never("a"), never("b", maxOverride("1h"))), says: "has been there for longer than 1h0m0s"},
		"true since nobody knows when counts as old": {value: "true", policies: some(never("a")), says: "has been there for longer"},
		"a time that is over is not worth a word":    {value: text(inside.Add(-time.Hour)), policies: some(never("a"))},
		"what is neither a time nor true is ignored": {value: "yes", policies: some(never("a")), says: `is ignored: it is neither a time`},
		"a time without a zone is ignored":           {value: "2026-10-03T22:00:00", policies: some(never("a")), says: `is ignored: it is neither a time`},
		"TRUE is not true":                           {value: "TRUE", since: inside, policies: some(never("a")), says: `is ignored: it is neither a time`},
		"another zone is the same instant":           {value: inside.Add(time.Minute).In(time.FixedZone("", 7200)).Format(time.RFC3339), policies: some(never("a")), open: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster("c1", nil, map[string]string{permissiveKey: tc.value})
			if !tc.since.IsZero() {
				c.ManagedFields = managed(tc.since, permissiveKey)
			}
			_, err := KeepOverrideTimes(c)
			require.NoError(t, err)
			var o Overrides
			o.read("Cluster", c)
			d := Decide(inside, &Subject{Overrides: o}, read(tc.policies...), Change{})
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
	d := Decide(inside, &Subject{Overrides: o}, read(never("a")), Change{})
	require.Contains(t, d.Message, "permissive until "+text(inside.Add(3*time.Hour)))
	require.Len(t, d.By, 3)
}

func TestPermissiveThenRestrictive(t *testing.T) {
	s := &Subject{Overrides: overrides(map[string]string{permissiveKey: text(inside.Add(time.Hour)), restrictiveKey: text(inside.Add(2 * time.Hour))})}
	policies := read(saturdays("a"))
	for at, open := range map[time.Duration]bool{0: true, time.Hour - time.Second: true, time.Hour: false, 2*time.Hour - time.Second: false, 2 * time.Hour: true} {
		require.Equal(t, open, Decide(inside.Add(at), s, policies, Change{}).Open, at)
	}
}

// managed are the managed fields of an object with an annotation that was set at an instant.
func managed(at time.Time, annotation string) []metav1.ManagedFieldsEntry {
	fields := &metav1.FieldsV1{}
	fields.SetRawString(`{"f:metadata":{"f:annotations":{".":{},"f:` + annotation + `":{}}}}`)
	return []metav1.ManagedFieldsEntry{{Manager: "kubectl-annotate", Time: &metav1.Time{Time: at}, FieldsV1: fields}}
}

func TestKeepOverrideTimes(t *testing.T) {
	hourAgo := inside.Add(-time.Hour)
	forged := func(m map[string]string) map[string]string {
		m[sinceAnnotation] = text(inside)
		return m
	}
	for name, tc := range map[string]struct {
		annotations map[string]string
		fields      []metav1.ManagedFieldsEntry
		want        map[string]string
	}{
		"nothing to keep":                       {nil, managed(hourAgo, "example.com/a"), nil},
		"true, and when":                        {map[string]string{permissiveKey: "true"}, managed(hourAgo, permissiveKey), map[string]string{permissiveKey: "true", sinceAnnotation: text(hourAgo)}},
		"an instant, and when":                  {map[string]string{permissiveKey: text(inside)}, managed(hourAgo, permissiveKey), map[string]string{permissiveKey: text(inside), sinceAnnotation: text(hourAgo)}},
		"true, by nobody knows whom":            {map[string]string{permissiveKey: "true"}, nil, map[string]string{permissiveKey: "true"}},
		"other annotations are not this one":    {map[string]string{permissiveKey: "true"}, managed(hourAgo, permissiveKey+"-reason"), map[string]string{permissiveKey: "true"}},
		"what is forged goes":                   {forged(map[string]string{"a": "b"}), nil, map[string]string{"a": "b"}},
		"what is forged goes with true":         {forged(map[string]string{permissiveKey: "true"}), nil, map[string]string{permissiveKey: "true"}},
		"what is forged does not win":           {forged(map[string]string{permissiveKey: "true"}), managed(hourAgo, permissiveKey), map[string]string{permissiveKey: "true", sinceAnnotation: text(hourAgo)}},
		"of more managers the first one counts": {map[string]string{permissiveKey: "true"}, append(managed(hourAgo, permissiveKey), managed(inside, permissiveKey)...), map[string]string{permissiveKey: "true", sinceAnnotation: text(hourAgo)}},
		"in whatever order they are":            {map[string]string{permissiveKey: "true"}, append(managed(inside, permissiveKey), managed(hourAgo, permissiveKey)...), map[string]string{permissiveKey: "true", sinceAnnotation: text(hourAgo)}},
		"managers without a time or fields":     {map[string]string{permissiveKey: "true"}, []metav1.ManagedFieldsEntry{{Manager: "a"}, {Manager: "b", Time: &metav1.Time{Time: inside}}}, map[string]string{permissiveKey: "true"}},
	} {
		partial := &metav1.PartialObjectMetadata{}
		loose := &unstructured.Unstructured{Object: map[string]any{}}
		for kind, obj := range map[string]client.Object{"a type": &clusterv1.Machine{}, "metadata": partial, "no type": loose} {
			t.Run(name+", in "+kind, func(t *testing.T) {
				own := map[string]string{}
				for k, v := range tc.annotations {
					own[k] = v
				}
				if len(own) > 0 {
					obj.SetAnnotations(own)
				}
				obj.SetManagedFields(tc.fields)
				out, err := KeepOverrideTimes(obj)
				require.NoError(t, err)
				require.Equal(t, tc.want, out.(client.Object).GetAnnotations())
				require.Empty(t, out.(client.Object).GetManagedFields())
			})
		}
	}
}

func TestKeepOverrideTimesOfWhatHasNoMetadata(t *testing.T) {
	out, err := KeepOverrideTimes("a tombstone")
	require.NoError(t, err)
	require.Equal(t, "a tombstone", out)
}

func TestAForgedTimeHasNoEffect(t *testing.T) {
	c := cluster("c1", nil, map[string]string{permissiveKey: "true", sinceAnnotation: text(inside)})
	c.CreationTimestamp = metav1.NewTime(created)
	_, err := KeepOverrideTimes(c)
	require.NoError(t, err)
	var o Overrides
	o.read("Cluster", c)
	d := Decide(inside, &Subject{Overrides: o}, read(never("a")), Change{})
	require.False(t, d.Open)
	require.Contains(t, d.Message, "has been there for longer")
}
