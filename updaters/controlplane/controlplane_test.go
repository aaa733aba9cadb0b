package controlplane_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/controlplane"
	"github.com/capi-refit/refit/updaters/updatertest"
)

const version = "bootstrap.cluster.x-k8s.io/v1beta2"

func config(current, desired string) updatertest.Case {
	return updatertest.Case{Object: fieldset.BootstrapConfig, APIVersion: version, Kind: "KubeadmConfig", Current: current, Desired: desired}
}

// server and worker are machines whose clusterConfiguration changes: one of the control plane, and a worker.
func server(current, desired string) updatertest.Case {
	spec := func(c string) string {
		return `{"joinConfiguration":{"controlPlane":{}},"clusterConfiguration":{"certificatesDir":"/p"` + c + `}}`
	}
	return config(spec(current), spec(desired))
}

func worker(current, desired string) updatertest.Case {
	spec := func(c string) string {
		return `{"joinConfiguration":{},"clusterConfiguration":{"certificatesDir":"/p"` + c + `}}`
	}
	return config(spec(current), spec(desired))
}

// list is a list of a component, with items that have a name and what else is given.
func list(component, name string, items ...string) string {
	for i, item := range items {
		n, rest, _ := strings.Cut(item, " ")
		items[i] = `{"name":"` + n + `"` + strings.ReplaceAll(rest, "'", `"`) + `}`
	}
	inner := `"` + name + `":[` + strings.Join(items, ",") + `]`
	if component == "etcd" {
		return `,"etcd":{"local":{"x":"y",` + inner + `}}`
	}
	return `,"` + component + `":{"x":"y",` + inner + `}`
}

const refresh = "StaticPodRefresh"

// claims are what is said of each field: its actions, or why it is left.
var claims = map[string]struct {
	updatertest.Case
	want string
}{
	"an argument":                           {server(list("apiServer", "extraArgs", "v ,'value':'2'"), list("apiServer", "extraArgs", "v ,'value':'4'")), refresh},
	"an argument of each":                   {server(list("scheduler", "extraArgs"), list("apiServer", "extraArgs", "v")+list("controllerManager", "extraArgs", "v")+list("scheduler", "extraArgs", "v")+list("etcd", "extraArgs", "v")), refresh + "|" + refresh + "|" + refresh + "|" + refresh},
	"an argument removed":                   {server(list("scheduler", "extraArgs", "v", "w"), list("scheduler", "extraArgs", "v")), refresh},
	"the order of arguments":                {server(list("scheduler", "extraArgs", "v", "w"), list("scheduler", "extraArgs", "w", "v")), "None"},
	"an argument named twice":               {server(list("scheduler", "extraArgs", "v"), list("scheduler", "extraArgs", "v", "v")), refresh},
	"an argument on a worker":               {worker(list("apiServer", "extraArgs", "etcd-servers ,'value':'a'"), list("apiServer", "extraArgs", "etcd-servers ,'value':'b'")), "None"},
	"an argument of a machine by init":      {config(`{"initConfiguration":{},"clusterConfiguration":{"scheduler":{"extraArgs":[{"name":"v","value":"2"}]}}}`, `{"initConfiguration":{},"clusterConfiguration":{"scheduler":{"extraArgs":[{"name":"v","value":"4"}]}}}`), refresh},
	"where the data are":                    {server("", list("apiServer", "extraArgs", "etcd-servers")), "says where the cluster's data are"},
	"where the server is":                   {server("", list("apiServer", "extraArgs", "advertise-address")), "others are told elsewhere"},
	"where etcd's data are":                 {server("", list("etcd", "extraArgs", "data-dir")), "says where the cluster's data are"},
	"which member it is":                    {server("", list("etcd", "extraArgs", "initial-cluster")), "which etcd member this is"},
	"the network of services":               {server("", list("controllerManager", "extraArgs", "service-cluster-ip-range")), "given out already"},
	"the election":                          {server("", list("scheduler", "extraArgs", "leader-elect ,'value':'false'")), "would act at once"},
	"where etcd is, of another program":     {server("", list("scheduler", "extraArgs", "etcd-servers")), refresh},
	"an argument with underscores":          {server("", list("apiServer", "extraArgs", "etcd_servers")), "single dashes"},
	"an argument of the future":             {server("", list("apiServer", "extraArgs", "v ,'valueFrom':{}")), "not of the form"},
	"arguments of an API version before":    {server("", `,"apiServer":{"x":"y","extraArgs":{"v":"2"}}`), "not of the form"},
	"a variable":                            {server("", list("apiServer", "extraEnvs", "A ,'value':'b'")), refresh},
	"the order of variables":                {server(list("apiServer", "extraEnvs", "A", "B"), list("apiServer", "extraEnvs", "B", "A")), refresh},
	"no variables":                          {server("", list("apiServer", "extraEnvs")), "None"},
	"a variable from elsewhere":             {server("", list("apiServer", "extraEnvs", "A ,'valueFrom':{'fieldRef':{}}")), "takes its value from elsewhere"},
	"a variable from elsewhere removed":     {server(list("etcd", "extraEnvs", "A ,'valueFrom':{'fieldRef':{}}"), ""), "takes its value from elsewhere"},
	"a variable whose name is none":         {server("", list("etcd", "extraEnvs", "A=B")), "a variable's name"},
	"a volume":                              {server("", list("apiServer", "extraVolumes", "a ,'hostPath':'/a','mountPath':'/b','readOnly':true,'pathType':'File'")), refresh},
	"a volume of the future":                {server("", list("apiServer", "extraVolumes", "a ,'hostPath':'/a','mountPath':'/b','x':'y'")), "not of the form"},
	"a volume whose path climbs":            {server("", list("apiServer", "extraVolumes", "a ,'hostPath':'/a/../b','mountPath':'/b'")), "not absolute and clean"},
	"a volume of no known type":             {server("", list("apiServer", "extraVolumes", "a ,'hostPath':'/a','mountPath':'/b','pathType':'Disk'")), "pathType"},
	"a volume whose name is none":           {server("", list("apiServer", "extraVolumes", "A.b ,'hostPath':'/a','mountPath':'/b'")), "a volume's name"},
	"names in the certificate":              {server("", `,"apiServer":{"x":"y","certSANs":["a.example.org","*.b.example.org","192.0.2.1","2001:db8::1"]}`), refresh},
	"names that are none":                   {server("", `,"apiServer":{"x":"y","certSANs":["a b"]}`), "neither an IP address nor a DNS name"},
	"names in etcd's certificates":          {server("", `,"etcd":{"local":{"x":"y","serverCertSANs":["a.example.org"],"peerCertSANs":["192.0.2.1"]}}`), refresh + "|" + refresh},
	"names in etcd's that are none":         {server("", `,"etcd":{"local":{"x":"y","peerCertSANs":["a b"]}}`), "neither an IP address nor a DNS name"},
	"a feature gate":                        {server("", `,"featureGates":{"RootlessControlPlane":true}`), refresh},
	"a feature gate gone":                   {server(`,"featureGates":{"RootlessControlPlane":true,"B":true}`, `,"featureGates":{"B":true}`), refresh},
	"a feature gate that acts elsewhere":    {server("", `,"featureGates":{"PublicKeysECDSA":true}`), "acts on the keys of certificates"},
	"a feature gate that is on anyway":      {server("", `,"featureGates":{"NodeLocalCRISocket":true}`), refresh},
	"a feature gate that there is not":      {server(`,"featureGates":{"B":true}`, `,"featureGates":{"A":true,"B":true}`), "kubeadm of v1.36.3 has no feature gate A"},
	"no feature gates":                      {server("", `,"featureGates":{}`), "None"},
	"the repository of images":              {server("", `,"imageRepository":"registry.example.org"`), refresh},
	"no repository of images":               {server(`,"imageRepository":"registry.example.org"`, ""), "name the repository to go back to"},
	"etcd's repository":                     {server("", `,"etcd":{"local":{"x":"y","imageRepository":"registry.example.org"}}`), refresh},
	"etcd's image":                          {server(`,"etcd":{"local":{"imageTag":"3.5.9-0"}}`, `,"etcd":{"local":{"imageTag":"3.5.15-0"}}`), refresh},
	"an earlier patch of etcd":              {server(`,"etcd":{"local":{"imageTag":"3.5.15-0"}}`, `,"etcd":{"local":{"imageTag":"3.5.9-0"}}`), "does not take etcd back"},
	"etcd's first tag":                      {server(`,"etcd":{"local":{"dataDir":"/d"}}`, `,"etcd":{"local":{"dataDir":"/d","imageTag":"3.6.9-0"}}`), refresh},
	"etcd's first tag, an earlier one":      {server(`,"etcd":{"local":{"dataDir":"/d"}}`, `,"etcd":{"local":{"dataDir":"/d","imageTag":"3.5.9-0"}}`), "has chosen up to 3.6.8-0"},
	"no tag of etcd any more":               {server(`,"etcd":{"local":{"dataDir":"/d","imageTag":"3.6.9-0"}}`, `,"etcd":{"local":{"dataDir":"/d"}}`), "name the tag to go to"},
	"an argument of etcd of its own naming": {server(`,"etcd":{"local":{"imageTag":"ours"}}`, `,"etcd":{"local":{"imageTag":"ours","extraArgs":[{"name":"v"}]}}`), "kubeadm can't compare it"},
	"the repository, and etcd's own naming": {server(`,"etcd":{"local":{"imageTag":"ours"}}`, `,"etcd":{"local":{"imageTag":"ours"}},"imageRepository":"registry.example.org"`), "kubeadm can't compare it"},
	"an earlier etcd":                       {server(`,"etcd":{"local":{"imageTag":"3.10.1-0"}}`, `,"etcd":{"local":{"imageTag":"3.6.9-0"}}`), "can't go back"},
	"an etcd of its own naming":             {server(`,"etcd":{"local":{"imageTag":"3.6.1"}}`, `,"etcd":{"local":{"imageTag":"ours"}}`), "kubeadm can't compare it"},
	"patches":                               {config(`{"joinConfiguration":{"controlPlane":{}}}`, `{"joinConfiguration":{"controlPlane":{},"patches":{"directory":"/etc/p"}}}`), refresh},
	"patches gone":                          {config(`{"joinConfiguration":{"controlPlane":{},"patches":{"directory":"/etc/p"}}}`, `{"joinConfiguration":{"controlPlane":{}}}`), refresh},
	"patches of the kubelet": {
		config(`{"joinConfiguration":{"controlPlane":{}},"files":[{"path":"/etc/p/kubeletconfiguration.yaml"}]}`,
			`{"joinConfiguration":{"controlPlane":{},"patches":{"directory":"/etc/p"}},"files":[{"path":"/etc/p/kubeletconfiguration.yaml"}]}`), "Restart kubelet.service," + refresh,
	},
	"patches of a worker":                   {config(`{"joinConfiguration":{}}`, `{"joinConfiguration":{"patches":{"directory":"/etc/p"}}}`), "Restart kubelet.service"},
	"patches of a section that is not read": {config(`{"joinConfiguration":{}}`, `{"joinConfiguration":{},"initConfiguration":{"patches":{"directory":"/etc/p"}}}`), "None"},
	"patches in a directory that climbs":    {config(`{"joinConfiguration":{"controlPlane":{}}}`, `{"joinConfiguration":{"controlPlane":{},"patches":{"directory":"../p"}}}`), "not an absolute, clean path"},
	"patches of the future":                 {config(`{"joinConfiguration":{"controlPlane":{}}}`, `{"joinConfiguration":{"controlPlane":{},"patches":{"directory":"/p","x":"y"}}}`), "does not know all fields"},
}

func TestClaim(t *testing.T) {
	for name, tc := range claims {
		t.Run(name, func(t *testing.T) {
			change := tc.Change(t)
			claim, err := controlplane.New(disruption.BuiltinRules()).Of("v1.36.3").Claim(t.Context(), change)
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

// TestWhatComesWithAVersion has feature gates change along with the version, as Cluster API does: all of kubeadm upgrade node goes by them.
func TestWhatComesWithAVersion(t *testing.T) {
	gates := server(`,"featureGates":{"ControlPlaneKubeletLocalMode":true}`, "")
	version := func(from, to string) fieldset.Change {
		return updatertest.Case{
			Object: fieldset.Machine, APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Machine",
			Current: `{"version":"` + from + `"}`, Desired: `{"version":"` + to + `"}`,
		}.Change(t)
	}
	u := controlplane.New(disruption.BuiltinRules()).Of("v1.30.9")
	claim, err := u.Claim(t.Context(), append(gates.Change(t), version("v1.35.1", "v1.36.3")...))
	require.NoError(t, err)
	require.Equal(t, refresh, said(claim), "it is on for good")
	gates.Current, gates.Desired = gates.Desired, gates.Current
	claim, err = u.Claim(t.Context(), append(gates.Change(t), version("v1.30.9", "v1.31.0")...))
	require.NoError(t, err)
	require.Equal(t, refresh, said(claim))
	claim, err = u.Of("v1.31.0").Claim(t.Context(), gates.Change(t))
	require.NoError(t, err)
	require.Contains(t, claim.Left[0].Reason, "the server in the kubelet's kubeconfig")
	claim, err = controlplane.New(disruption.BuiltinRules()).Claim(t.Context(), gates.Change(t))
	require.NoError(t, err)
	require.Contains(t, claim.Left[0].Reason, "is not known")
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

func TestARuleThatReplaces(t *testing.T) {
	rules := disruption.Rules{Domains: map[disruption.Domain][]disruption.Action{disruption.ControlPlane: {{Type: disruption.Replace}}}}
	u := controlplane.New(rules)
	claim, err := u.Claim(t.Context(), server("", list("apiServer", "extraArgs", "v")).Change(t))
	require.NoError(t, err)
	require.Contains(t, claim.Left[0].Reason, "says Replace")
	claim, err = u.Claim(t.Context(), worker("", list("apiServer", "extraArgs", "v")).Change(t))
	require.NoError(t, err)
	require.Equal(t, "None", said(claim), "a worker has no control plane to replace")
}

func TestConformance(t *testing.T) {
	cases := map[string]updatertest.Case{
		"another field":         config(`{}`, `{"ntp":{"enabled":true}}`),
		"another of its fields": server("", `,"dns":{"imageTag":"v1"}`),
		"another kind": {
			Object: fieldset.BootstrapConfig, APIVersion: "bootstrap.example.org/v1", Kind: "OtherConfig",
			Current: `{}`, Desired: `{"clusterConfiguration":{"imageRepository":"a"}}`,
		},
		"a component that is no mapping": server("", `,"apiServer":[]`),
		"a list that is none":            server("", `,"apiServer":{"x":"y","extraEnvs":"a"}`),
	}
	for name, tc := range claims {
		cases[name] = tc.Case
	}
	updatertest.Conform(t, controlplane.New(disruption.BuiltinRules()), cases)
}

const everything = `{
	"apiServer":{
		"extraArgs":[{"name":"v","value":"2"},{"name":"audit-log-path","value":"-"}],
		"extraEnvs":[{"name":"B","value":"b"},{"name":"A"},{"name":"C","valueFrom":{"fieldRef":{"fieldPath":"x"}}}],
		"extraVolumes":[{"name":"a","hostPath":"/a","mountPath":"/b","readOnly":true,"pathType":"File"},{"name":"c","hostPath":"/c","mountPath":"/c"}],
		"certSANs":["a.example.org"]},
	"controllerManager":{"extraArgs":[{"name":"v","value":"3"}]},
	"scheduler":{"extraEnvs":[{"name":"A","value":"b"}]},
	"etcd":{"local":{"imageTag":"3.6.1-0","imageRepository":"r","extraArgs":[{"name":"quota-backend-bytes","value":"1"}],
		"serverCertSANs":["s.example.org"],"peerCertSANs":["192.0.2.1"]}},
	"featureGates":{"G":false},"imageRepository":"registry.example.org"}`

func desire(t *testing.T, spec string, controlPlane bool) []node.Resource {
	v, err := fieldset.Decode([]byte(spec))
	require.NoError(t, err)
	got, err := controlplane.New(disruption.BuiltinRules()).Desire(updaters.Desired{
		BootstrapConfig: fieldset.Spec{APIVersion: version, Kind: "KubeadmConfig", Value: v}, ControlPlane: controlPlane,
	})
	require.NoError(t, err)
	return got
}

func TestDesire(t *testing.T) {
	want := node.ControlPlane{
		APIServer: node.Component{
			ExtraArgs: []node.Arg{{Name: "audit-log-path", Value: "-"}, {Name: "v", Value: "2"}},
			ExtraEnvs: []node.Env{{Name: "B", Value: "b"}, {Name: "A"}},
			ExtraVolumes: []node.ExtraVolume{
				{Name: "a", HostPath: "/a", MountPath: "/b", ReadOnly: true, PathType: "File"}, {Name: "c", HostPath: "/c", MountPath: "/c"},
			},
		},
		ControllerManager: node.Component{ExtraArgs: []node.Arg{{Name: "v", Value: "3"}}},
		Scheduler:         node.Component{ExtraEnvs: []node.Env{{Name: "A", Value: "b"}}},
		Etcd: &node.Component{
			ExtraArgs: []node.Arg{{Name: "quota-backend-bytes", Value: "1"}}, ImageRepository: "r", ImageTag: "3.6.1-0",
			ServerCertSANs: []string{"s.example.org"}, PeerCertSANs: []string{"192.0.2.1"},
		},
		CertSANs: []string{"a.example.org"}, FeatureGates: map[string]bool{"G": false}, ImageRepository: "registry.example.org",
		PatchesDirectory: "/etc/p",
	}
	spec := `{"joinConfiguration":{"controlPlane":{},"patches":{"directory":"/etc/p"}},"clusterConfiguration":` + everything + `}`
	require.Equal(t, []node.Resource{{ControlPlane: &want}}, desire(t, spec, false), "Cluster API's joinConfiguration tells")
	require.Equal(t, []node.Resource{{ControlPlane: &want}}, desire(t, spec, true))
}

func TestDesireOfAWorker(t *testing.T) {
	require.Empty(t, desire(t, `{"joinConfiguration":{},"clusterConfiguration":`+everything+`}`, false))
}

func TestDesireByTheLabel(t *testing.T) {
	got := desire(t, `{}`, true)
	require.Equal(t, []node.Resource{{ControlPlane: &node.ControlPlane{Etcd: &node.Component{}}}}, got, "kubeadm's default is an etcd of its own")
}

func TestDesireWithEtcdElsewhere(t *testing.T) {
	got := desire(t, `{"clusterConfiguration":{"etcd":{"external":{"endpoints":["https://a"]}}}}`, true)
	require.Nil(t, got[0].ControlPlane.Etcd)
}

func TestDesireOfAnotherKind(t *testing.T) {
	got, err := controlplane.New(disruption.BuiltinRules()).Desire(updaters.Desired{ControlPlane: true})
	require.NoError(t, err)
	require.Empty(t, got)
}
