package baseline

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	bootstrapinit "sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/cloudinit"
	kubeadmtypes "sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/types"
	"sigs.k8s.io/cluster-api/util/version"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/kubeadm"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/controlplane"
	"github.com/capi-refit/refit/updaters/kubelet"
	"github.com/capi-refit/refit/updaters/ntp"
	"github.com/capi-refit/refit/updaters/users"
)

const (
	aKey  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJEiZ0kI7w1UEGGGr1v0R2TZBMhKQ3LZ4G4Xo0kLJQ2h alice@example.org"
	aHash = "$6$abcdefgh$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)

// fullRegistration is a nodeRegistration with something of each kind.
func fullRegistration() bootstrapv1.NodeRegistrationOptions {
	arg := func(name, value string) bootstrapv1.Arg { return bootstrapv1.Arg{Name: name, Value: &value} }
	return bootstrapv1.NodeRegistrationOptions{
		Name: "{{ ds.meta_data.local_hostname }}", CRISocket: "unix:///run/containerd/containerd.sock",
		KubeletExtraArgs: []bootstrapv1.Arg{
			arg("v", "4"), arg("node-labels", "a=b,topology.kubernetes.io/zone=z"), arg("max-pods", "50"),
			arg("provider-id", "aws:///{{ ds.meta_data.instance_id }}"), arg("eviction-hard", "memory.available<100Mi"), arg("system-reserved", ""),
		},
		Taints: &[]corev1.Taint{{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoSchedule}},
	}
}

// fullSpec is a KubeadmConfig with something of each kind.
func fullSpec() bootstrapv1.KubeadmConfigSpec {
	return bootstrapv1.KubeadmConfigSpec{
		Users: []bootstrapv1.User{
			{
				Name: "alice", Gecos: "Alice A.", Groups: "sudo, docker", HomeDir: "/home/a", Shell: "/bin/bash", Passwd: aHash, PrimaryGroup: "ops",
				LockPassword: ptr.To(false), Sudo: "ALL=(ALL) NOPASSWD:ALL", SSHAuthorizedKeys: []string{aKey},
			},
			{Name: "bob", Inactive: ptr.To(true), LockPassword: ptr.To(true), Gecos: `"12"`},
			{Name: "carol"},
		},
		NTP: bootstrapv1.NTP{Servers: []string{"time.example.org", "192.0.2.1"}},
		ClusterConfiguration: bootstrapv1.ClusterConfiguration{
			APIServer: bootstrapv1.APIServer{
				ExtraArgs:    []bootstrapv1.Arg{{Name: "v", Value: ptr.To("2")}, {Name: "audit-log-path", Value: ptr.To("-")}},
				ExtraVolumes: []bootstrapv1.HostPathMount{{Name: "a", HostPath: "/a", MountPath: "/b", ReadOnly: ptr.To(true), PathType: corev1.HostPathFile}},
				CertSANs:     []string{"a.example.org"},
			},
			Etcd:            bootstrapv1.Etcd{Local: bootstrapv1.LocalEtcd{ImageTag: "3.6.1-0", ExtraArgs: []bootstrapv1.Arg{{Name: "quota-backend-bytes", Value: ptr.To("1")}}}},
			ImageRepository: "registry.example.org", FeatureGates: map[string]bool{"G": true},
		},
	}
}

// renders make bootstrap data as Cluster API's bootstrap provider does.
var renders = map[string]struct {
	spec   func(*bootstrapv1.KubeadmConfigSpec)
	render func(*testing.T, bootstrapv1.KubeadmConfigSpec, string) []byte
}{
	"a worker": {
		func(s *bootstrapv1.KubeadmConfigSpec) { s.JoinConfiguration.NodeRegistration = fullRegistration() },
		func(t *testing.T, s bootstrapv1.KubeadmConfigSpec, kubernetes string) []byte {
			v, err := version.ParseTolerantImageTag(kubernetes)
			require.NoError(t, err)
			join := s.JoinConfiguration.DeepCopy()
			join.NodeRegistration.Taints = ptr.To(append(*join.NodeRegistration.Taints, corev1.Taint{Key: "node.cluster.x-k8s.io/uninitialized", Effect: "NoSchedule"}))
			text, err := kubeadmtypes.MarshalJoinConfigurationForVersion(join, v)
			require.NoError(t, err)
			data, err := bootstrapinit.NewNode(&bootstrapinit.NodeInput{BaseUserData: userData(s), JoinConfiguration: text})
			require.NoError(t, err)
			return data
		},
	},
	"one that joins the control plane": {
		func(s *bootstrapv1.KubeadmConfigSpec) {
			s.JoinConfiguration.NodeRegistration, s.JoinConfiguration.ControlPlane = fullRegistration(), &bootstrapv1.JoinControlPlane{}
		},
		func(t *testing.T, s bootstrapv1.KubeadmConfigSpec, kubernetes string) []byte {
			v, err := version.ParseTolerantImageTag(kubernetes)
			require.NoError(t, err)
			text, err := kubeadmtypes.MarshalJoinConfigurationForVersion(&s.JoinConfiguration, v)
			require.NoError(t, err)
			data, err := bootstrapinit.NewJoinControlPlane(&bootstrapinit.ControlPlaneJoinInput{BaseUserData: userData(s), JoinConfiguration: text})
			require.NoError(t, err)
			return data
		},
	},
	"the first of the control plane": {
		func(s *bootstrapv1.KubeadmConfigSpec) {
			s.InitConfiguration.NodeRegistration, s.InitConfiguration.Patches.Directory = fullRegistration(), "/etc/p"
		},
		func(t *testing.T, s bootstrapv1.KubeadmConfigSpec, kubernetes string) []byte {
			v, err := version.ParseTolerantImageTag(kubernetes)
			require.NoError(t, err)
			initial, err := kubeadmtypes.MarshalInitConfigurationForVersion(&s.InitConfiguration, v)
			require.NoError(t, err)
			cluster, err := kubeadmtypes.MarshalClusterConfigurationForVersion(&s.ClusterConfiguration, v, nil)
			require.NoError(t, err)
			data, err := bootstrapinit.NewInitControlPlane(&bootstrapinit.ControlPlaneInput{
				BaseUserData: userData(s), InitConfiguration: initial, ClusterConfiguration: cluster,
			})
			require.NoError(t, err)
			return data
		},
	},
}

func userData(s bootstrapv1.KubeadmConfigSpec) bootstrapinit.BaseUserData {
	return bootstrapinit.BaseUserData{Users: s.Users, NTP: &s.NTP, AdditionalFiles: []bootstrapv1.File{{Path: "/etc/a", Content: "a\n"}}}
}

// TestBaselineIsWhatTheSpecsDesire renders specs as Cluster API does, and reads them back: what was laid down is what the updaters
// desire of the same specs, so that nothing is taken for changed.
func TestBaselineIsWhatTheSpecsDesire(t *testing.T) {
	for name, tc := range renders {
		for _, kubernetes := range []string{"1.30.0", "1.36.0"} { // kubeadm's API v1beta3 and v1beta4
			t.Run(name+" of "+kubernetes, func(t *testing.T) {
				spec := fullSpec()
				tc.spec(&spec)
				made, err := Parse("cloud-config", tc.render(t, spec, kubernetes))
				require.NoError(t, err)
				require.Contains(t, made.Baseline.Files, file("/etc/a", "a\n", "root:root", "0644"))

				d := desiredOf(t, spec)
				want := byRef(t, desire(t, d))
				if name == "one that joins the control plane" {
					delete(want, "control plane") // kubeadm read it in the cluster
				}
				require.Equal(t, want, byRef(t, made.Baseline.Resources))
				m := d.BootstrapConfig.Value.(map[string]any)
				registered := kubeadm.OfSpec(m, kubeadm.ControlPlane(m)).Registration()
				require.Equal(t, registered, *made.Registration)
				require.Equal(t, map[string]string{"a": "b"}, registered.Labels)
				require.Equal(t, []corev1.Taint{{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoSchedule}}, registered.Taints)
			})
		}
	}
}

func desiredOf(t *testing.T, spec bootstrapv1.KubeadmConfigSpec) updaters.Desired {
	text, err := json.Marshal(spec)
	require.NoError(t, err)
	v, err := fieldset.Decode(text)
	require.NoError(t, err)
	return updaters.Desired{BootstrapConfig: fieldset.Spec{APIVersion: bootstrapv1.GroupVersion.String(), Kind: "KubeadmConfig", Value: v}}
}

func desire(t *testing.T, d updaters.Desired) []node.Resource {
	rules := disruption.BuiltinRules()
	registry, err := updaters.NewRegistry(users.New(rules), ntp.New(rules), kubelet.New(rules), controlplane.New(rules))
	require.NoError(t, err)
	resources, err := registry.Desire(d)
	require.NoError(t, err)
	return resources
}

func byRef(t *testing.T, resources []node.Resource) map[string]node.Resource {
	out := map[string]node.Resource{}
	for _, r := range resources {
		ref, ok := r.Ref()
		require.True(t, ok)
		require.NotContains(t, out, ref.String())
		out[ref.String()] = r
	}
	return out
}

func TestBaselineOfOtherBootstrapData(t *testing.T) {
	user := func(u node.User) []node.Resource { return []node.Resource{{User: &u}} }
	for name, tc := range map[string]struct {
		data string
		want []node.Resource
	}{
		"users that are only named":      {"users: [default, alice]", nil},
		"users of another form":          {"users: alice, bob", nil},
		"the later of two users":         {"users: [{name: a, gecos: one}, {name: a, gecos: two}]", user(node.User{Name: "a", Gecos: "two"})},
		"a name that looks like another": {"users: [{name: 12, gecos: true, lock_passwd: 'True'}]", user(node.User{Name: "12", Gecos: "true", LockPassword: ptr.To(true)})},
		"a hash for an account":          {"users: [{name: a, passwd: one, hashed_passwd: two}]", user(node.User{Name: "a", PasswordHash: "two"})},
		"groups in a list":               {"users: [{name: a, groups: [b, 'c,d']}]", user(node.User{Name: "a", Groups: []string{"b", "c", "d"}})},
		"no sudo":                        {"users: [{name: a, sudo: false}]", user(node.User{Name: "a"})},
		"several rules of sudo":          {"users: [{name: a, sudo: [x, y]}]", user(node.User{Name: "a"})},
		"one key":                        {"users: [{name: a, ssh_authorized_keys: k}]", user(node.User{Name: "a", SSHAuthorizedKeys: []string{"k"}})},
		"no servers":                     {"ntp:\n  enabled: true\n  servers:", []node.Resource{{NTP: &node.NTP{Enabled: true}}}},
		"no time":                        {"ntp: {enabled: false}", []node.Resource{{NTP: &node.NTP{}}}},
		"kubeadm's configuration with Jinja in it": {
			"write_files: [{path: /run/kubeadm/kubeadm-join-config.yaml, content: \"{% if x %}\\nkind: JoinConfiguration\\n\"}]", nil,
		},
		"a file that is not kubeadm's": {
			"write_files: [{path: /etc/kubeadm.yml, content: \"kind: JoinConfiguration\\napiVersion: example.org/v1\\n\"}]", nil,
		},
		"an empty joinConfiguration": {
			"write_files: [{path: /run/kubeadm/kubeadm-join-config.yaml, content: \"kind: JoinConfiguration\\napiVersion: kubeadm.k8s.io/v1beta4\\n\"}]",
			[]node.Resource{{Kubelet: &node.Kubelet{}}, {KubeletConfig: &node.KubeletConfig{}}},
		},
		"patches of kubeadm": {
			"write_files: [{path: /run/kubeadm/kubeadm-join-config.yaml, content: \"kind: JoinConfiguration\\napiVersion: kubeadm.k8s.io/v1beta4\\npatches: {directory: /etc/p}\\n\"}]",
			[]node.Resource{{Kubelet: &node.Kubelet{}}, {KubeletConfig: &node.KubeletConfig{PatchesDirectory: "/etc/p"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			made, err := Parse("cloud-config", []byte("#cloud-config\n"+tc.data+"\n"))
			require.NoError(t, err)
			require.Equal(t, tc.want, made.Baseline.Resources)
		})
	}
}

func TestIgnitionUsers(t *testing.T) {
	made, err := Parse("ignition", []byte(`{"passwd":{"users":[
		{"name":"alice","gecos":"A","groups":["sudo"],"homeDir":"/h","primaryGroup":"p","shell":"/bin/sh","passwordHash":"x","sshAuthorizedKeys":["k"]},
		{"name":"bob"},{"name":""}]},
		"storage":{"files":[
			{"path":"/etc/sudoers.d/alice","contents":{"source":"data:,alice%20ALL%3D(ALL)%20ALL%0A"}},
			{"path":"/etc/sudoers.d/bob","contents":{"source":"data:,carol%20ALL%3D(ALL)%20ALL%0A"}},
			{"path":"/etc/kubeadm.yml","contents":{"source":"data:,---%0Akind:%20JoinConfiguration%0AapiVersion:%20kubeadm.k8s.io%2Fv1beta4%0AcontrolPlane:%20{}%0A"}}]}}`))
	require.NoError(t, err)
	require.Equal(t, []node.Resource{
		{User: &node.User{
			Name: "alice", Gecos: "A", Groups: []string{"sudo"}, HomeDir: "/h", PrimaryGroup: "p", Shell: "/bin/sh", PasswordHash: "x",
			LockPassword: ptr.To(false), Sudo: "ALL=(ALL) ALL", SSHAuthorizedKeys: []string{"k"},
		}},
		{User: &node.User{Name: "bob"}},
		{Kubelet: &node.Kubelet{}}, {KubeletConfig: &node.KubeletConfig{}},
	}, made.Baseline.Resources)
	require.Equal(t, []corev1.Taint{{Key: kubeadm.ControlPlaneTaint, Effect: corev1.TaintEffectNoSchedule}}, made.Registration.Taints, "kubeadm's own")
}

// FuzzBaseline looks for bootstrap data that can't be got over, or whose errors show any of it.
func FuzzBaseline(f *testing.F) {
	f.Add("cloud-config", bootstrapData)
	f.Add("cloud-config", "users: [{name: a, groups: [b], lock_passwd: false}]\nntp: {servers: [a]}")
	f.Add("cloud-config", "write_files: [{path: /run/kubeadm/kubeadm.yaml, content: \"kind: InitConfiguration\\napiVersion: kubeadm.k8s.io/v1beta4\\nnodeRegistration: {taints: [1], kubeletExtraArgs: {a: 1}}\\n---\\nkind: ClusterConfiguration\\napiVersion: kubeadm.k8s.io/v1beta4\\n\"}]")
	f.Add("ignition", `{"passwd":{"users":[{"name":"a"}]},"storage":{"files":[{"path":"/etc/kubeadm.yml","contents":{"source":"data:,a"}}]}}`)
	f.Fuzz(func(t *testing.T, format, data string) {
		made, err := Parse(format, []byte(data))
		if err != nil {
			require.Nil(t, made.Baseline)
			return
		}
		seen := map[string]bool{}
		for _, r := range made.Baseline.Resources {
			ref, ok := r.Ref()
			require.True(t, ok)
			require.False(t, seen[ref.String()], "%s is there twice", ref)
			seen[ref.String()] = true
		}
	})
}
