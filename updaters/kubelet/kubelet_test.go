package kubelet_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/kubelet"
	"github.com/capi-refit/refit/updaters/updatertest"
)

const version = "bootstrap.cluster.x-k8s.io/v1beta2"

func config(current, desired string) updatertest.Case {
	return updatertest.Case{Object: fieldset.BootstrapConfig, APIVersion: version, Kind: "KubeadmConfig", Current: current, Desired: desired}
}

// worker and server are machines whose nodeRegistration changes: a worker, and one of the control plane.
func worker(current, desired string) updatertest.Case {
	spec := func(r string) string { return `{"joinConfiguration":{"nodeRegistration":{"criSocket":"s"` + r + `}}}` }
	return config(spec(current), spec(desired))
}

func server(current, desired string) updatertest.Case {
	spec := func(r string) string {
		return `{"joinConfiguration":{"controlPlane":{},"nodeRegistration":{"criSocket":"s"` + r + `}}}`
	}
	return config(spec(current), spec(desired))
}

// args is a list of arguments: name, value, name, value, and so on.
func args(pairs ...string) string {
	var items []string
	for i := 0; i < len(pairs); i += 2 {
		items = append(items, `{"name":"`+pairs[i]+`","value":"`+pairs[i+1]+`"}`)
	}
	return `,"kubeletExtraArgs":[` + strings.Join(items, ",") + `]`
}

func taints(items ...string) string { return `,"taints":[` + strings.Join(items, ",") + `]` }

const (
	dedicated = `{"key":"dedicated","value":"db","effect":"NoSchedule"}`
	broken    = `{"key":"broken","effect":"NoExecute"}`
	ours      = `{"key":"node-role.kubernetes.io/control-plane","effect":"NoSchedule"}`
)

const restart = "Restart kubelet.service"

// claims are what is said of each field: its actions, or why it is left.
var claims = map[string]struct {
	updatertest.Case
	want string
}{
	"an argument":                                   {worker(args("v", "2"), args("v", "4")), restart},
	"an argument added":                             {worker("", args("max-pods", "50")), restart},
	"an argument removed":                           {worker(args("max-pods", "50"), ""), restart},
	"two arguments":                                 {worker("", args("v", "4", "max-pods", "50")), restart + "|" + restart},
	"the order":                                     {worker(args("v", "2", "max-pods", "50"), args("max-pods", "50", "v", "2")), "None"},
	"an empty list":                                 {worker("", args()), "None"},
	"an argument named twice":                       {worker(args("v", "1"), args("v", "1", "v", "2")), restart},
	"an argument beside one named twice":            {worker(args("node-ip", "::1", "v", "1", "v", "2"), args("node-ip", "::1", "v", "1")), restart},
	"a policy for CPUs":                             {worker("", args("cpu-manager-policy", "static")), "Drain," + restart},
	"a policy for memory":                           {worker("", args("memory-manager-policy", "Static")), "Drain," + restart},
	"a policy for the topology":                     {worker(args("topology-manager-policy", "none"), args("topology-manager-policy", "restricted")), "Drain," + restart},
	"the scope of a policy":                         {worker("", args("topology-manager-scope", "pod")), "Drain," + restart},
	"an argument of the init section":               {config(`{"joinConfiguration":{}}`, `{"joinConfiguration":{},"initConfiguration":{"nodeRegistration":{"x":"y"`+args("v", "4")+`}}}`), "None"},
	"an argument of a machine made by init":         {config(`{"initConfiguration":{"bootstrapTokens":[]}}`, `{"initConfiguration":{"bootstrapTokens":[],"nodeRegistration":{"x":"y"`+args("v", "4")+`}}}`), restart},
	"an argument that kubeadm sets":                 {worker("", args("container-runtime-endpoint", "unix:///x")), "not changed on a running node: kubeadm sets it"},
	"the name of the Node":                          {worker("", args("hostname-override", "a")), "says which Node this is"},
	"its name at the provider":                      {worker(args("provider-id", "a"), args("provider-id", "b")), "says which Node this is"},
	"its address":                                   {worker("", args("node-ip", "192.0.2.1")), "what runs there keeps the former address"},
	"where the kubelet is asked":                    {worker("", args("healthz-port", "1")), "whether it is well"},
	"an argument with dashes":                       {worker("", args("--v", "4")), "without dashes before it"},
	"an argument with underscores":                  {worker("", args("hostname_override", "a")), "single dashes"},
	"a value with a blank":                          {worker("", args("system-reserved", "cpu=1 memory=1Gi")), "white space"},
	"a value with a line break":                     {worker("", args("v", `1\n2`)), "white space"},
	"a value with a quote":                          {worker("", args("v", `'`)), "a quote"},
	"a former value with a quote":                   {worker(args("v", `'`), args("v", "4")), "a quote"},
	"a value that is put in":                        {worker("", args("system-reserved", "{{ ds.meta_data.x }}")), "put in when a new machine starts"},
	"a value of another type":                       {config(`{"joinConfiguration":{"nodeRegistration":{}}}`, `{"joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[{"name":"v","value":4}]}}}`), "not of the form"},
	"arguments of an API version before":            {config(`{"joinConfiguration":{"nodeRegistration":{}}}`, `{"joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":{"v":"4"}}}}`), "not of the form"},
	"labels":                                        {worker("", args("node-labels", "a=b,example.org/c=")), "None"},
	"labels gone":                                   {worker(args("node-labels", "a=b"), ""), "None"},
	"a label that a kubelet may set":                {worker("", args("node-labels", "node.kubernetes.io/x=y")), "None"},
	"a label that a kubelet may not set":            {worker("", args("node-labels", "node-role.kubernetes.io/x=")), "a kubelet may not set label node-role.kubernetes.io/x"},
	"a label of admission":                          {worker("", args("node-labels", "node-restriction.kubernetes.io/x=")), "may not set"},
	"a label that the kubelet sets":                 {worker(args("node-labels", "topology.kubernetes.io/zone=a"), args("node-labels", "topology.kubernetes.io/zone=b")), "again whenever it starts"},
	"a label beside one that the kubelet sets":      {worker(args("node-labels", "topology.kubernetes.io/zone=a"), args("node-labels", "topology.kubernetes.io/zone=a,b=c")), "None"},
	"a label whose key is none":                     {worker("", args("node-labels", "-=b")), "a label's key"},
	"a label whose value is none":                   {worker("", args("node-labels", "a=b/c")), "the value of label a"},
	"labels that are put in":                        {worker("", args("node-labels", "a=${ZONE}")), "put in when a new machine starts"},
	"labels and an argument":                        {worker("", args("node-labels", "a=b", "v", "4")), "None|" + restart},
	"a taint":                                       {worker("", taints(dedicated)), "None"},
	"a taint removed":                               {worker(taints(dedicated, broken), taints(dedicated)), "None"},
	"a taint that evicts":                           {worker("", taints(broken)), "Drain"},
	"a taint that evicts others than before":        {worker(taints(broken), taints(`{"key":"broken","value":"x","effect":"NoExecute"}`)), "Drain"},
	"a taint beside one that evicts":                {worker(taints(broken), taints(broken, dedicated)), "None"},
	"two taints":                                    {worker("", taints(broken, dedicated)), "Drain|None"},
	"a taint by the kubelet's argument":             {worker("", args("register-with-taints", "dedicated=db:NoSchedule")), "None"},
	"one that evicts, by the kubelet's argument":    {worker("", args("register-with-taints", "dedicated=db:NoSchedule,x:NoExecute")), "Drain"},
	"the argument hides the list of a worker":       {worker(args("register-with-taints", "a:NoSchedule"), args("register-with-taints", "a:NoSchedule")+taints(broken)), "None"},
	"the list shows when the argument goes":         {worker(args("register-with-taints", "a:NoSchedule")+taints(broken), taints(broken)), "Drain"},
	"the argument does not hide a server's list":    {server(args("register-with-taints", "a:NoSchedule"), args("register-with-taints", "a:NoSchedule")+taints(broken)), "Drain"},
	"taints that are put in":                        {worker("", args("register-with-taints", "{{ x }}")), "put in when a new machine starts"},
	"no taints on a server":                         {server("", taints()), "None"},
	"no taints on a worker":                         {worker("", taints()), "None"},
	"kubeadm's own taint on a server":               {server(taints(), ""), "None"},
	"kubeadm's own taint named":                     {server("", taints(ours)), "None"},
	"a taint of a controller":                       {worker("", taints(`{"key":"node.kubernetes.io/unschedulable","effect":"NoSchedule"}`)), "added and taken away by controllers"},
	"a taint for the start":                         {worker("", taints(`{"key":"node.cloudprovider.kubernetes.io/uninitialized","value":"true","effect":"NoSchedule"}`)), "None"},
	"a taint whose key is none":                     {worker("", taints(`{"key":"a b","effect":"NoSchedule"}`)), "a taint's key"},
	"a taint whose value is none":                   {worker("", taints(`{"key":"a","value":"b c","effect":"NoSchedule"}`)), "the value of taint a"},
	"a taint without a known effect":                {worker("", taints(`{"key":"a","effect":"No"}`)), "the effect of taint a"},
	"a taint with a field of the future":            {worker("", taints(`{"key":"a","effect":"NoSchedule","x":"y"}`)), "not of the form"},
	"a taint named twice":                           {worker("", taints(dedicated, dedicated)), "None"},
	"taints of the init section":                    {config(`{"joinConfiguration":{}}`, `{"joinConfiguration":{},"initConfiguration":{"nodeRegistration":{"x":"y"`+taints(broken)+`}}}`), "None"},
	"from a machine made by init to one that joins": {config(`{"initConfiguration":{"nodeRegistration":{"x":"y"`+args("v", "2")+`}}}`, `{"joinConfiguration":{"nodeRegistration":{"x":"y"`+args("v", "2")+`}}}`), restart + "|" + restart},
}

func TestClaim(t *testing.T) {
	for name, tc := range claims {
		t.Run(name, func(t *testing.T) {
			claim, err := kubelet.New(disruption.BuiltinRules()).Claim(t.Context(), tc.Change(t))
			require.NoError(t, err)
			if len(claim.Left) > 0 {
				require.Empty(t, claim.Covered)
				require.Contains(t, claim.Left[0].Reason, tc.want)
				return
			}
			require.Equal(t, tc.want, said(claim))
		})
	}
}

// said is what a claim covers, field by field.
func said(claim updaters.Claim) string {
	var got []string
	for _, c := range claim.Covered {
		var actions []string
		for _, a := range c.Actions {
			actions = append(actions, a.String())
		}
		got = append(got, strings.Join(actions, ","))
	}
	return strings.Join(got, "|")
}

func TestRulesOfAnOperator(t *testing.T) {
	rules := disruption.BuiltinRules()
	rules.Domains = maps.Clone(rules.Domains)
	rules.Domains[disruption.KubeletArguments] = []disruption.Action{{Type: disruption.Replace}}
	rules.Domains[disruption.Taints] = []disruption.Action{{Type: disruption.Drain}}
	u := kubelet.New(rules)
	for name, tc := range map[string]struct {
		updatertest.Case
		covered, left string
	}{
		"arguments are replaced": {worker("", args("v", "4")), "", "says Replace"},
		"labels are not":         {worker("", args("node-labels", "a=b")), "None", ""},
		"taints have a drain":    {worker("", taints(dedicated)), "Drain", ""},
	} {
		t.Run(name, func(t *testing.T) {
			claim, err := u.Claim(t.Context(), tc.Change(t))
			require.NoError(t, err)
			require.Equal(t, tc.covered, said(claim))
			if tc.left != "" {
				require.Contains(t, claim.Left[0].Reason, tc.left)
			}
		})
	}
}

func TestConformance(t *testing.T) {
	cases := map[string]updatertest.Case{
		"another field": config(`{}`, `{"ntp":{"enabled":true}}`),
		"another field of a nodeRegistration": config(`{"joinConfiguration":{"nodeRegistration":{"name":"a"}}}`,
			`{"joinConfiguration":{"nodeRegistration":{"name":"b"}}}`),
		"another kind": {
			Object: fieldset.BootstrapConfig, APIVersion: "bootstrap.example.org/v1", Kind: "OtherConfig",
			Current: `{}`, Desired: `{"joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[{"name":"v","value":"1"}]}}}`,
		},
		"no section at all":            config(`{}`, `{"joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[{"name":"v","value":"1"}]}}}`),
		"a section that is no mapping": config(`{}`, `{"joinConfiguration":[]}`),
	}
	for name, tc := range claims {
		cases[name] = tc.Case
	}
	updatertest.Conform(t, kubelet.New(disruption.BuiltinRules()), cases)
}

func TestDesire(t *testing.T) {
	for name, tc := range map[string]struct {
		spec         string
		controlPlane bool
		want         []node.Arg
	}{
		"no nodeRegistration": {`{}`, false, nil},
		"sorted by name": {
			`{"joinConfiguration":{"nodeRegistration":{"x":"y"` + args("v", "2", "max-pods", "50") + `}}}`, false,
			[]node.Arg{{Name: "max-pods", Value: "50"}, {Name: "v", Value: "2"}},
		},
		"one name in its order": {
			`{"joinConfiguration":{"nodeRegistration":{"x":"y"` + args("v", "2", "a", "1", "v", "1") + `}}}`, false,
			[]node.Arg{{Name: "a", Value: "1"}, {Name: "v", Value: "2"}, {Name: "v", Value: "1"}},
		},
		"not what counts at the registration only": {
			`{"joinConfiguration":{"nodeRegistration":{"x":"y"` + args("node-labels", "a=b", "register-with-taints", "a:NoSchedule") + `}}}`, false, nil,
		},
		"not what is left as it is": {
			`{"joinConfiguration":{"nodeRegistration":{"x":"y"` + args("node-ip", "::1", "v", "{{ x }}", "a", "b c") + `}}}`, false, nil,
		},
		"initConfiguration of the control plane": {
			`{"initConfiguration":{"nodeRegistration":{"x":"y"` + args("v", "2") + `}}}`, true, []node.Arg{{Name: "v", Value: "2"}},
		},
		"joinConfiguration wins": {
			`{"joinConfiguration":{},"initConfiguration":{"nodeRegistration":{"x":"y"` + args("v", "2") + `}}}`, true, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := fieldset.Decode([]byte(tc.spec))
			require.NoError(t, err)
			got, err := kubelet.New(disruption.BuiltinRules()).Desire(updaters.Desired{
				BootstrapConfig: fieldset.Spec{APIVersion: version, Kind: "KubeadmConfig", Value: v}, ControlPlane: tc.controlPlane,
			})
			require.NoError(t, err)
			require.Equal(t, []node.Resource{{Kubelet: &node.Kubelet{ExtraArgs: tc.want}}, {KubeletConfig: &node.KubeletConfig{}}}, got)
		})
	}
}

func TestDesirePatches(t *testing.T) {
	for spec, want := range map[string]string{
		`{"joinConfiguration":{"patches":{"directory":"/etc/p"}}}`:                        "/etc/p",
		`{"joinConfiguration":{},"initConfiguration":{"patches":{"directory":"/etc/p"}}}`: "",
		`{"initConfiguration":{"patches":{"directory":"/etc/p"}}}`:                        "/etc/p",
	} {
		v, err := fieldset.Decode([]byte(spec))
		require.NoError(t, err)
		got, err := kubelet.New(disruption.BuiltinRules()).Desire(updaters.Desired{BootstrapConfig: fieldset.Spec{APIVersion: version, Kind: "KubeadmConfig", Value: v}})
		require.NoError(t, err)
		require.Equal(t, node.Resource{KubeletConfig: &node.KubeletConfig{PatchesDirectory: want}}, got[1], spec)
	}
}

func TestDesireOfAnotherKind(t *testing.T) {
	got, err := kubelet.New(disruption.BuiltinRules()).Desire(updaters.Desired{})
	require.NoError(t, err)
	require.Empty(t, got)
}
