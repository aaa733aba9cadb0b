package inert_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/updaters/inert"
	"github.com/capi-refit/refit/updaters/updatertest"
)

func kubeadm(current, desired string) updatertest.Case {
	return updatertest.Case{
		Object: fieldset.BootstrapConfig, APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig",
		Current: current, Desired: desired,
	}
}

func of(o fieldset.Object, current, desired string) updatertest.Case {
	return updatertest.Case{Object: o, APIVersion: "example.org/v1", Kind: "Thing", Current: current, Desired: desired}
}

const (
	claimed = "claimed"
	silent  = ""
)

// claims are what is said of the one field that changes: that it takes nothing, why it is left, or nothing at all.
var claims = map[string]struct {
	updatertest.Case
	want string
}{
	"kubeadm's log":                    {kubeadm(`{}`, `{"verbosity":5}`), claimed},
	"tokens":                           {kubeadm(`{}`, `{"initConfiguration":{"bootstrapTokens":[{"token":"a"}]}}`), claimed},
	"phases":                           {kubeadm(`{"joinConfiguration":{"skipPhases":["a"]}}`, `{}`), claimed},
	"a timeout":                        {kubeadm(`{}`, `{"joinConfiguration":{"timeouts":{"discoverySeconds":1}}}`), claimed},
	"a timeout of the future":          {kubeadm(`{}`, `{"joinConfiguration":{"timeouts":{"lunchSeconds":1}}}`), silent},
	"discovery":                        {kubeadm(`{}`, `{"joinConfiguration":{"discovery":{"bootstrapToken":{"token":"a"}}}}`), claimed},
	"discovery of the future":          {kubeadm(`{}`, `{"joinConfiguration":{"discovery":{"x":1}}}`), claimed},
	"CoreDNS":                          {kubeadm(`{}`, `{"clusterConfiguration":{"dns":{"imageTag":"v1"}}}`), claimed},
	"a part of a field without parts":  {kubeadm(`{}`, `{"verbosity":{"x":1}}`), silent},
	"commands":                         {kubeadm(`{}`, `{"preKubeadmCommands":["a"]}`), "futureOnlyFields: Allow"},
	"mounts":                           {kubeadm(`{"mounts":[["a","b"]]}`, `{"mounts":[["a","b"],["c","d"]]}`), "futureOnlyFields: Allow"},
	"disks":                            {kubeadm(`{}`, `{"diskSetup":{"partitions":[{"device":"a"}]}}`), "futureOnlyFields: Allow"},
	"disks of the future":              {kubeadm(`{}`, `{"diskSetup":{"raid":[{"device":"a"}]}}`), "futureOnlyFields: Allow"},
	"Ignition":                         {kubeadm(`{}`, `{"ignition":{"containerLinuxConfig":{"strict":true}}}`), "futureOnlyFields: Allow"},
	"how long certificates are valid":  {kubeadm(`{}`, `{"clusterConfiguration":{"certificateValidityPeriodDays":90}}`), claimed},
	"how long a CA is valid":           {kubeadm(`{}`, `{"clusterConfiguration":{"caCertificateValidityPeriodDays":90}}`), claimed},
	"keys of certificates":             {kubeadm(`{}`, `{"clusterConfiguration":{"encryptionAlgorithm":"ECDSA-P256"}}`), claimed},
	"the format":                       {kubeadm(`{}`, `{"format":"ignition"}`), "in another format"},
	"where etcd has its data":          {kubeadm(`{}`, `{"clusterConfiguration":{"etcd":{"local":{"dataDir":"/x"}}}}`), "does not move to another directory"},
	"etcd elsewhere":                   {kubeadm(`{}`, `{"clusterConfiguration":{"etcd":{"external":{"caFile":"/x"}}}}`), "does not move between etcds"},
	"etcd's arguments":                 {kubeadm(`{}`, `{"clusterConfiguration":{"etcd":{"local":{"extraArgs":[{"name":"a","value":"b"}]}}}}`), silent},
	"a control-plane node":             {kubeadm(`{}`, `{"joinConfiguration":{"controlPlane":{}}}`), "does not become"},
	"its address":                      {kubeadm(`{}`, `{"joinConfiguration":{"controlPlane":{"localAPIEndpoint":{"bindPort":1}}}}`), "does not move to another address"},
	"a Node's name":                    {kubeadm(`{}`, `{"initConfiguration":{"nodeRegistration":{"name":"a"}}}`), "does not change its name"},
	"a taint":                          {kubeadm(`{}`, `{"joinConfiguration":{"nodeRegistration":{"taints":[{"key":"a","effect":"b"}]}}}`), silent},
	"a file":                           {kubeadm(`{}`, `{"files":[{"path":"/a"}]}`), silent},
	"a field of the future":            {kubeadm(`{}`, `{"preKubeadmCommandsOfTheFuture":["a"]}`), silent},
	"a bootstrap config of others":     {of(fieldset.BootstrapConfig, `{}`, `{"verbosity":5}`), silent},
	"a version":                        {of(fieldset.Machine, `{"version":"v1"}`, `{"version":"v2"}`), silent},
	"a failure domain":                 {of(fieldset.Machine, `{}`, `{"failureDomain":"a"}`), "does not move to another failure domain"},
	"something else of a machine":      {of(fieldset.Machine, `{}`, `{"x":"a"}`), silent},
	"an infrastructure machine":        {of(fieldset.InfrastructureMachine, `{}`, `{"ami":{"id":"a"}}`), "inertFields of a NodeDisruptionPolicy"},
	"all of an infrastructure machine": {of(fieldset.InfrastructureMachine, `{}`, `null`), "inertFields of a NodeDisruptionPolicy"},
}

func TestClaim(t *testing.T) {
	for name, tc := range claims {
		t.Run(name, func(t *testing.T) {
			for _, futureOnly := range []bool{false, true} {
				claim, err := inert.New(futureOnly).Claim(t.Context(), tc.Change(t))
				require.NoError(t, err)
				switch {
				case tc.want == silent:
					require.Empty(t, claim.Covered)
					require.Empty(t, claim.Left)
				case tc.want == claimed, futureOnly && strings.Contains(tc.want, "futureOnlyFields"):
					require.Empty(t, claim.Left)
					require.Len(t, claim.Covered, 1)
					require.Equal(t, []disruption.Action{{Type: disruption.None}}, claim.Covered[0].Actions)
				default:
					require.Empty(t, claim.Covered)
					require.Len(t, claim.Left, 1)
					require.Contains(t, claim.Left[0].Reason, tc.want)
				}
			}
		})
	}
}

func TestConformance(t *testing.T) {
	cases := map[string]updatertest.Case{}
	for name, tc := range claims {
		cases[name] = tc.Case
	}
	updatertest.Conform(t, inert.New(false), cases)
	updatertest.Conform(t, inert.New(true), cases)
}

func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range inert.Table() {
		id := string(e.Object) + " " + e.Path
		require.False(t, seen[id], "%s is there twice", id)
		seen[id] = true
		require.NotEmpty(t, e.Why, id)
		require.False(t, strings.HasSuffix(e.Why, ".") || strings.Contains(e.Why, "\n"), "%s: a reason is put into a sentence", id)
		got, ok := inert.Lookup(e.Object, strings.Split(e.Path, ".")...)
		require.True(t, ok)
		require.Equal(t, e, got, "an entry is found at its own path")
	}
}

func TestLongestPathWins(t *testing.T) {
	e, ok := inert.Lookup(fieldset.BootstrapConfig, "joinConfiguration", "controlPlane", "localAPIEndpoint", "bindPort")
	require.True(t, ok)
	require.Equal(t, "joinConfiguration.controlPlane", e.Path)
	_, ok = inert.Lookup(fieldset.BootstrapConfig, "joinConfiguration", "controlPlaneX")
	require.False(t, ok, "a path ends between names")
}
