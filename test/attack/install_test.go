package attack_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// clusterAPI returns where the source of Cluster API is, in the version that refit is made for.
func clusterAPI(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "sigs.k8s.io/cluster-api").Output()
	require.NoError(t, err)
	var module struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &module))
	return module.Dir
}

func config(t *testing.T, elem ...string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(append([]string{"..", "..", "config"}, elem...)...))
	require.NoError(t, err)
	return dir
}

// render builds a kustomization of the directories, given as absolute paths.
func render(t *testing.T, resources, components []string) resmap.ResMap {
	t.Helper()
	overlay, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	relative := func(dirs []string) (out []string) {
		for _, dir := range dirs {
			r, err := filepath.Rel(overlay, dir)
			require.NoError(t, err)
			out = append(out, r)
		}
		return out
	}
	content, err := yaml.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": relative(resources), "components": relative(components),
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), content, 0o600))
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), overlay)
	require.NoError(t, err)
	return built
}

// all returns the objects of a kind.
func all[T any](t *testing.T, built resmap.ResMap, kind string) []T {
	t.Helper()
	var out []T
	for _, r := range built.Resources() {
		if r.GetKind() != kind {
			continue
		}
		var object T
		require.NoError(t, yaml.UnmarshalStrict([]byte(r.MustYaml()), &object))
		out = append(out, object)
	}
	return out
}

// one returns the only object of a kind.
func one[T any](t *testing.T, built resmap.ResMap, kind string) T {
	t.Helper()
	objects := all[T](t, built, kind)
	require.Len(t, objects, 1, kind)
	return objects[0]
}

type certificate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		SecretName, CommonName, Duration, RenewBefore string
		DNSNames, Usages                              []string
		IsCA                                          bool
		IssuerRef                                     struct{ Group, Kind, Name string }
		PrivateKey                                    map[string]any
		Subject                                       map[string]any
	}
}

func TestNobodyButClusterAPIsManagersIsLetInAtTheHooks(t *testing.T) {
	built := render(t, []string{config(t, "default")}, nil)
	policy := one[networkingv1.NetworkPolicy](t, built, "NetworkPolicy")
	deployment := one[appsv1.Deployment](t, built, "Deployment")
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	require.NoError(t, err)
	require.True(t, selector.Matches(labels.Set(deployment.Spec.Template.Labels)), "it is about refit's pods")
	require.Equal(t, deployment.Namespace, policy.Namespace)
	require.Contains(t, policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)

	ports := map[string]int32{}
	for _, p := range deployment.Spec.Template.Spec.Containers[0].Ports {
		ports[p.Name] = p.ContainerPort
	}
	require.Len(t, ports, 4)
	open := map[int32]bool{}
	for _, rule := range policy.Spec.Ingress {
		require.NotEmpty(t, rule.Ports, "a rule without ports is about all")
		for _, p := range rule.Ports {
			require.Nil(t, p.EndPort)
			open[p.Port.IntVal] = true
			if p.Port.IntVal != ports["hooks"] {
				continue
			}
			var from []string
			for _, peer := range rule.From {
				require.Nil(t, peer.IPBlock)
				require.Len(t, peer.NamespaceSelector.MatchLabels, 1)
				require.Empty(t, peer.NamespaceSelector.MatchExpressions)
				from = append(from, peer.NamespaceSelector.MatchLabels[corev1.LabelMetadataName])
			}
			require.Equal(t, []string{"capi-system", "capi-kubeadm-control-plane-system"}, from)
		}
	}
	for name, port := range ports {
		require.True(t, open[port], "%s must be reached, by kubelets, Prometheus or the managers", name)
	}
	require.Empty(t, all[admissionv1.MutatingWebhookConfiguration](t, built, "MutatingWebhookConfiguration"))
	requireAdmissionApart(t, built, deployment, ports)
}

// requireAdmissionApart requires that the API server, whose address nobody knows, asks at a port at which no hooks are served.
func requireAdmissionApart(t *testing.T, built resmap.ResMap, deployment appsv1.Deployment, ports map[string]int32) {
	t.Helper()
	require.NotEqual(t, ports["hooks"], ports["admission"])
	require.Contains(t, deployment.Spec.Template.Spec.Containers[0].Args, fmt.Sprintf("--admission-port=%d", ports["admission"]))
	asks := one[admissionv1.ValidatingWebhookConfiguration](t, built, "ValidatingWebhookConfiguration")
	services := map[string]corev1.Service{}
	for _, s := range all[corev1.Service](t, built, "Service") {
		services[s.Namespace+"/"+s.Name] = s
	}
	served := one[certificate](t, built, "Certificate")
	require.Equal(t, served.Namespace+"/"+served.Name, asks.Annotations["cert-manager.io/inject-ca-from"])
	require.NotEmpty(t, asks.Webhooks)
	for _, w := range asks.Webhooks {
		at := w.ClientConfig.Service
		require.NotEmpty(t, services[at.Namespace+"/"+at.Name].Spec.Ports)
		for _, p := range services[at.Namespace+"/"+at.Name].Spec.Ports {
			require.Equal(t, p.Port == *at.Port, p.TargetPort.StrVal == "admission", "%v", p)
		}
		require.Contains(t, served.Spec.DNSNames, at.Name+"."+at.Namespace+".svc")
		require.Equal(t, admissionv1.Ignore, *w.FailurePolicy, "nobody is kept from writing policies while refit is away")
		require.Equal(t, admissionv1.SideEffectClassNone, *w.SideEffects)
		for _, rule := range w.Rules {
			for _, resource := range rule.Resources {
				require.Contains(t, []string{"changemanagementpolicies", "clusterchangemanagementpolicies"}, resource, "no status, and nothing else")
			}
		}
	}
}

func TestClientCertificatesAreOneComponentAway(t *testing.T) {
	built := render(t, []string{config(t, "default")}, []string{config(t, "components", "mtls")})
	spec := one[appsv1.Deployment](t, built, "Deployment").Spec.Template.Spec
	require.Contains(t, spec.Containers[0].Args, "--client-ca-file=/client-ca/client-ca.crt")
	require.Contains(t, spec.Containers[0].Args, "--leader-elect", "what was there stays")
	require.Contains(t, spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "client-ca", MountPath: "/client-ca", ReadOnly: true})
	var accepted []string
	for _, arg := range spec.Containers[0].Args {
		if names, ok := strings.CutPrefix(arg, "--client-names="); ok {
			accepted = strings.Split(names, ",")
		}
	}

	managers := render(t, []string{config(t, "components", "mtls", "managers")}, nil)
	var names []string
	authorities := map[string]bool{}
	for _, c := range all[certificate](t, managers, "Certificate") {
		require.Equal(t, "Issuer", c.Spec.IssuerRef.Kind, "a ClusterIssuer signs for every namespace")
		if c.Spec.IsCA {
			authorities[c.Namespace] = true
			continue
		}
		names = append(names, c.Spec.DNSNames...)
		require.Equal(t, []string{"client auth"}, c.Spec.Usages)
	}
	slices.Sort(names)
	slices.Sort(accepted)
	require.Equal(t, names, accepted, "the names that refit accepts are those that are certified")
	require.Equal(t, map[string]bool{"capi-system": true, "capi-kubeadm-control-plane-system": true}, authorities)
}

// bareManager is a Deployment of a manager that has no volumes.
const bareManager = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: capi-controller-manager, namespace: capi-system}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      containers: [{name: manager, image: "manager:v1", args: [--leader-elect]}]
`

func TestTheManagersPatchFitsWhatClusterAPIShips(t *testing.T) {
	dir := clusterAPI(t)
	bare, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(bare, "kustomization.yaml"), []byte("resources: [manager.yaml]\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(bare, "manager.yaml"), []byte(bareManager), 0o600))
	for name, tc := range map[string]struct{ from, flags string }{
		"the core manager":          {filepath.Join(dir, "core", "config", "default"), filepath.Join(dir, "core", "main.go")},
		"the control-plane manager": {filepath.Join(dir, "controlplane", "kubeadm", "config", "default"), filepath.Join(dir, "controlplane", "kubeadm", "main.go")},
		"one without volumes":       {bare, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := one[appsv1.Deployment](t, render(t, []string{tc.from}, nil), "Deployment").Spec.Template.Spec
			after := one[appsv1.Deployment](t, render(t, []string{tc.from}, []string{config(t, "components", "mtls", "manager-deployments")}), "Deployment").Spec.Template.Spec
			require.Len(t, after.Containers, 1)
			require.Equal(t, append(before.Containers[0].Args,
				"--runtime-extension-client-cert-file=/etc/refit-client/tls.crt", "--runtime-extension-client-key-file=/etc/refit-client/tls.key",
			), after.Containers[0].Args)
			require.ElementsMatch(t, append(before.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "refit-client", MountPath: "/etc/refit-client", ReadOnly: true}), after.Containers[0].VolumeMounts)
			require.ElementsMatch(t, append(before.Volumes, corev1.Volume{Name: "refit-client", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "refit-client"}}}), after.Volumes)
			if tc.flags != "" {
				main, err := os.ReadFile(tc.flags)
				require.NoError(t, err)
				require.Contains(t, string(main), `"runtime-extension-client-cert-file"`)
				require.Contains(t, string(main), `"runtime-extension-client-key-file"`)
			}
		})
	}
}

func TestPrometheusSendsItsTokenToRefitAlone(t *testing.T) {
	type monitor struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`

		Spec struct {
			Selector  metav1.LabelSelector
			Endpoints []struct {
				Port, Scheme, BearerTokenFile string
				HonorLabels                   bool
				TLSConfig                     struct {
					CA                 struct{ Secret corev1.SecretKeySelector }
					ServerName         string
					InsecureSkipVerify bool
				}
			}
		}
	}
	built := render(t, []string{config(t, "prometheus")}, nil)
	m, service := one[monitor](t, built, "ServiceMonitor"), one[corev1.Service](t, built, "Service")
	var served certificate
	for _, c := range all[certificate](t, render(t, []string{config(t, "default")}, nil), "Certificate") {
		served = c
	}
	require.NotEmpty(t, m.Spec.Endpoints)
	for _, e := range m.Spec.Endpoints {
		require.NotEmpty(t, e.BearerTokenFile)
		require.Equal(t, "https", e.Scheme)
		require.False(t, e.TLSConfig.InsecureSkipVerify)
		require.Equal(t, served.Spec.SecretName, e.TLSConfig.CA.Secret.Name)
		require.Equal(t, "ca.crt", e.TLSConfig.CA.Secret.Key)
		require.Equal(t, service.Name+"."+service.Namespace+".svc", e.TLSConfig.ServerName)
		require.Contains(t, served.Spec.DNSNames, e.TLSConfig.ServerName)
	}
	require.Equal(t, served.Namespace, m.Namespace, "a ServiceMonitor names Secrets of its own namespace")
}
