package kubeadm_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/capi-refit/refit/internal/kubeadm"
	"github.com/capi-refit/refit/internal/node"
)

func TestSection(t *testing.T) {
	m := map[string]any{}
	for name, tc := range map[string]struct {
		spec         map[string]any
		section      string
		controlPlane bool
	}{
		"nothing":              {nil, kubeadm.Join, false},
		"join":                 {map[string]any{kubeadm.Join: m}, kubeadm.Join, false},
		"a control plane":      {map[string]any{kubeadm.Join: map[string]any{"controlPlane": m}}, kubeadm.Join, true},
		"init":                 {map[string]any{kubeadm.Init: m}, kubeadm.Init, true},
		"both":                 {map[string]any{kubeadm.Init: m, kubeadm.Join: m}, kubeadm.Join, false},
		"a join that is none":  {map[string]any{kubeadm.Join: "x"}, kubeadm.Join, false},
		"an empty join and no": {map[string]any{kubeadm.Join: map[string]any{"controlPlane": nil}}, kubeadm.Join, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.section, kubeadm.Section(tc.spec))
			require.Equal(t, tc.controlPlane, kubeadm.ControlPlane(tc.spec))
		})
	}
}

func TestAllTaints(t *testing.T) {
	taint := func(key string) corev1.Taint { return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule} }
	told := []node.Arg{{Name: kubeadm.RegisterWithTaints, Value: "a:NoSchedule"}, {Name: kubeadm.RegisterWithTaints, Value: "b:NoSchedule"}}
	for name, tc := range map[string]struct {
		options kubeadm.Options
		want    []corev1.Taint
	}{
		"a worker":                       {kubeadm.Options{}, nil},
		"a control plane":                {kubeadm.Options{ControlPlane: true}, []corev1.Taint{taint(kubeadm.ControlPlaneTaint)}},
		"a control plane without":        {kubeadm.Options{ControlPlane: true, Taints: &[]corev1.Taint{}}, nil},
		"the last argument counts":       {kubeadm.Options{Args: told, Taints: &[]corev1.Taint{taint("c")}}, []corev1.Taint{taint("b")}},
		"both count for a control plane": {kubeadm.Options{Args: told, ControlPlane: true, Taints: &[]corev1.Taint{taint("c"), taint("b")}}, []corev1.Taint{taint("c"), taint("b")}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.options.AllTaints()
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestRegistrationLeavesOutWhatIsNotRefits(t *testing.T) {
	o := kubeadm.OptionsOf(map[string]any{"nodeRegistration": map[string]any{
		"kubeletExtraArgs": map[string]any{"v": "2", "node-ip": "::1", "max-pods": "{{ x }}", "node-labels": "a=b,topology.kubernetes.io/zone=z,-=x,=y"},
		"taints": []any{
			map[string]any{"key": "node.cluster.x-k8s.io/uninitialized", "effect": "NoSchedule"},
			map[string]any{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
			map[string]any{"key": "a", "value": "b", "effect": "NoExecute"}, "none",
		},
	}}, false)
	r := o.Registration()
	require.Equal(t, kubeadm.Registration{
		Args: []node.Arg{{Name: "v", Value: "2"}}, Labels: map[string]string{"a": "b"},
		Taints: []corev1.Taint{{Key: "a", Value: "b", Effect: corev1.TaintEffectNoExecute}},
	}, r)
}

func TestRegistrationThatIsNotKnown(t *testing.T) {
	o := kubeadm.Options{Args: []node.Arg{{Name: kubeadm.NodeLabels, Value: "a=$B"}, {Name: kubeadm.RegisterWithTaints, Value: "{{ x }}"}}}
	r := o.Registration()
	require.True(t, r.LabelsUnknown)
	require.True(t, r.TaintsUnknown)
	require.Empty(t, r.Labels)
	require.Empty(t, r.Taints)
}

// FuzzValues looks for values of node-labels and register-with-taints that come to labels or taints that an API server refuses,
// and for problems that show values.
func FuzzValues(f *testing.F) {
	for _, seed := range []string{"a=b,c", "example.org/a=b", "a=b:NoSchedule,c:NoExecute", "=,:,,", "a:b:c", "{{ x }}", "$a", " a = b "} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		o := kubeadm.Options{Args: []node.Arg{{Name: kubeadm.NodeLabels, Value: value}, {Name: kubeadm.RegisterWithTaints, Value: value}, {Name: "v", Value: value}}}
		r := o.Registration()
		for key, text := range r.Labels {
			require.Empty(t, kubeadm.LabelProblem(key, text))
			require.NotContains(t, text, "$")
		}
		for _, taint := range r.Taints {
			require.Empty(t, kubeadm.TaintProblem(taint))
		}
		for _, a := range r.Args {
			require.Len(t, strings.Fields("x"+a.Value), 1, "it is one word on a command line")
			require.NotContains(t, a.Value, `"`)
		}
	})
}
