package check

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// unguarded is a fleet that is installed without the guard, as by default.
func unguarded(f *fleet) {
	f.guard.SetName("")
	args := &f.refit.Spec.Template.Spec.Containers[0].Args
	*args = (*args)[:len(*args)-1]
}

func TestMistakesOfTheGuardAreFound(t *testing.T) {
	webhook := func(f *fleet) *admissionregistrationv1.ValidatingWebhook { return &f.guard.Webhooks[0] }
	for name, tc := range map[string]struct {
		spoil func(*fleet)
		check string
		level Level
		says  string
	}{
		"it is not installed":      {unguarded, "", Good, ""},
		"a policy has the default": {func(f *fleet) { unguarded(f); f.policy.Spec.Guard = refitv1.RefuseGuard }, "", Good, ""},
		"a policy asks for it": {func(f *fleet) { unguarded(f); f.policy.Spec.Guard = refitv1.StrictGuard }, "guard", Warning,
			"nothing comes of the field guard of ChangeManagementPolicy fleet/any"},
		"one of the platform does": {func(f *fleet) {
			unguarded(f)
			p := &refitv1.ClusterChangeManagementPolicy{}
			p.Name, p.Spec.Strategy, p.Spec.Guard = "platform", "Permissive", refitv1.WarnGuard
			f.more = append(f.more, p)
		}, "guard", Warning, "ClusterChangeManagementPolicy platform"},
		"nobody asks it":               {func(f *fleet) { f.guard.SetName("") }, "guard", Warning, "it has --guard, and no ValidatingWebhookConfiguration"},
		"nobody answers":               {func(f *fleet) { name := f.guard.Name; unguarded(f); f.guard.SetName(name) }, "guard", Warning, "it has no --guard"},
		"no authority":                 {func(f *fleet) { webhook(f).ClientConfig.CABundle = nil }, "certificate", Error, "no certificate of an authority"},
		"its Service is not there":     {func(f *fleet) { webhook(f).ClientConfig.Service.Name = "other" }, "guard", Error, "Service refit-system/other, which is not there"},
		"its port is not there":        {func(f *fleet) { webhook(f).ClientConfig.Service.Port = new(int32(9444)) }, "guard", Error, "port 9444 of Service refit-system/refit"},
		"its failures are refusals":    {func(f *fleet) { webhook(f).FailurePolicy = new(admissionregistrationv1.Fail) }, "guard", Warning, "failurePolicy is Fail"},
		"that is the default":          {func(f *fleet) { webhook(f).FailurePolicy = nil }, "guard", Warning, "failurePolicy is Fail"},
		"it has no time":               {func(f *fleet) { webhook(f).TimeoutSeconds = new(int32(3)) }, "guard", Warning, "timeoutSeconds is 3"},
		"it has the default time":      {func(f *fleet) { webhook(f).TimeoutSeconds = nil }, "", Good, ""},
		"it is of a version before":    {func(f *fleet) { webhook(f).Rules = webhook(f).Rules[:2] }, "guard", Warning, "not asked about edits of machinehealthchecks"},
		"a kind is left out":           {func(f *fleet) { webhook(f).Rules[0].Resources = []string{"clusters"} }, "guard", Warning, "not asked about edits of machinedeployments"},
		"an operation is left out":     {func(f *fleet) { webhook(f).Rules[1].Operations = []admissionregistrationv1.OperationType{"CREATE"} }, "guard", Warning, "kubeadmcontrolplanes"},
		"a subresource is left out":    {func(f *fleet) { webhook(f).Rules[1].Resources = []string{"kubeadmcontrolplanes/*"} }, "", Good, ""},
		"only a subresource is asked":  {func(f *fleet) { webhook(f).Rules[1].Resources = []string{"kubeadmcontrolplanes/scale"} }, "guard", Warning, "kubeadmcontrolplanes"},
		"a version that nobody writes": {func(f *fleet) { webhook(f).Rules[1].APIVersions = []string{"v1alpha3"} }, "guard", Warning, "kubeadmcontrolplanes"},
		"all versions":                 {func(f *fleet) { webhook(f).Rules[1].APIVersions = []string{"*"} }, "", Good, ""},
		"what has no namespace":        {func(f *fleet) { webhook(f).Rules[1].Scope = new(admissionregistrationv1.ClusterScope) }, "guard", Warning, "kubeadmcontrolplanes"},
		"any scope":                    {func(f *fleet) { webhook(f).Rules[1].Scope = nil }, "", Good, ""},
		"another version of the API":   {func(f *fleet) { webhook(f).MatchPolicy = new(admissionregistrationv1.Exact) }, "guard", Warning, "matchPolicy is Exact"},
		"other namespaces": {func(f *fleet) {
			webhook(f).NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}, "guard", Warning, "its namespaceSelector is a=b: edits in other namespaces are stored unseen, as in fleet"},
		"its namespaces": {func(f *fleet) {
			webhook(f).NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
			f.namespace.Labels = map[string]string{"a": "b"}
		}, "", Good, ""},
		"all namespaces": {func(f *fleet) { webhook(f).NamespaceSelector = &metav1.LabelSelector{} }, "", Good, ""},
		"other objects": {func(f *fleet) {
			webhook(f).ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}, "guard", Warning, "its objectSelector is a=b"},
		"all objects": {func(f *fleet) { webhook(f).ObjectSelector = &metav1.LabelSelector{} }, "", Good, ""},
		"a condition that never holds": {func(f *fleet) {
			webhook(f).MatchConditions = append(webhook(f).MatchConditions, admissionregistrationv1.MatchCondition{Name: "x", Expression: "false"})
		}, "guard", Warning, "its match condition x is none of refit's (false)"},
		"no condition": {func(f *fleet) { webhook(f).MatchConditions = nil }, "", Good, ""},
		"somebody else's guard": {func(f *fleet) {
			unguarded(f)
			f.guard.SetName("other")
			webhook(f).Name = "guard.example.com"
			webhook(f).FailurePolicy = nil
		}, "", Good, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			tc.spoil(f)
			all := f.run()
			require.Equal(t, tc.level, Worst(all), "%+v", all)
			for _, one := range all {
				if one.Check == "guard" {
					require.Equal(t, tc.level, one.Level, "it is well, and it is not: %+v", all)
				}
				if one.Level != Good {
					require.Equal(t, tc.check, one.Check)
					require.Equal(t, tc.level, one.Level)
					require.Contains(t, one.Message, tc.says)
					require.NotEmpty(t, one.Do)
				}
			}
		})
	}
}

// TestAGuardThatIsAskedIsSaidSo, once for each that asks.
func TestAGuardThatIsAskedIsSaidSo(t *testing.T) {
	var said []Finding
	for _, one := range newFleet(t).run() {
		if one.Check == "guard" {
			said = append(said, one)
		}
	}
	require.Equal(t, []Finding{good("guard", "ValidatingWebhookConfiguration refit-guard", "it has the API server ask about edits")}, said)
}
