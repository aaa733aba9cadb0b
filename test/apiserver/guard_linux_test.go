//go:build e2e

package apiserver_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/explain"
	"github.com/capi-refit/refit/internal/server"
	"github.com/capi-refit/refit/test/apiserver"
	"github.com/capi-refit/refit/test/apiserver/apitest"
	"github.com/capi-refit/refit/webhook"
)

// guarded is a cluster of one owner of each kind, with a machine of each.
const guarded = `
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: one, namespace: fleet}
spec: {template: {spec: {files: [{path: /etc/motd, content: one}]}}}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: in-place, namespace: fleet}
spec: {template: {spec: {files: [{path: /etc/motd, content: two}]}}}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: replaces, namespace: fleet}
spec: {template: {spec: {preKubeadmCommands: ["true"], diskSetup: {partitions: [{device: /dev/sdb, layout: true}]}}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1
kind: AcmeMachineTemplate
metadata: {name: small, namespace: fleet}
spec: {template: {spec: {size: small}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1
kind: AcmeMachineTemplate
metadata: {name: large, namespace: fleet}
spec: {template: {spec: {size: large}}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: c1, namespace: fleet}
spec: {controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: kcp}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: md, namespace: fleet, labels: {cluster.x-k8s.io/cluster-name: c1}}
spec:
  clusterName: c1
  replicas: 1
  selector: {matchLabels: {cluster.x-k8s.io/deployment-name: md}}
  rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}}
  template:
    metadata: {labels: {cluster.x-k8s.io/deployment-name: md}}
    spec:
      clusterName: c1
      version: v1.36.1
      bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: one}}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AcmeMachineTemplate, name: small}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: kcp, namespace: fleet, labels: {cluster.x-k8s.io/cluster-name: c1}}
spec:
  replicas: 3
  version: v1.36.1
  rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0}}}
  machineTemplate: {spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AcmeMachineTemplate, name: small}}}
  kubeadmConfigSpec: {files: [{path: /etc/motd, content: one}]}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: w-1, namespace: fleet, labels: {cluster.x-k8s.io/cluster-name: c1, cluster.x-k8s.io/deployment-name: md}}
spec:
  clusterName: c1
  version: v1.36.1
  bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfig, name: w-1}}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AcmeMachine, name: w-1}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {name: m-1, namespace: fleet, labels: {cluster.x-k8s.io/cluster-name: c1, cluster.x-k8s.io/control-plane: ""}}
spec:
  clusterName: c1
  version: v1.36.1
  bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfig, name: m-1}}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AcmeMachine, name: m-1}
---
apiVersion: capi-refit.dev/v1alpha1
kind: ChangeManagementPolicy
metadata: {name: keep, namespace: fleet}
spec: {strategy: Permissive, replacement: Forbid}
`

const healthCheck = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {name: workers, namespace: fleet}
spec: {clusterName: c1, selector: {matchLabels: {cluster.x-k8s.io/deployment-name: md}}, checks: {nodeStartupTimeoutSeconds: 600}}
`

// warnings are those that an API server sends.
type warnings []string

func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

// TestTheGuardRefusesEdits has a real API server ask refit, as config/components/guard says, with the rights that refit is installed with.
func TestTheGuardRefusesEdits(t *testing.T) {
	infra := schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1", Kind: "AcmeMachine"}
	s := apitest.Start(t, envtest.CRDInstallOptions{CRDs: apitest.ClusterAPI(t, infra)})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{refitv1.AddToScheme, corev1.AddToScheme, autoscalingv1.AddToScheme, clusterv1.AddToScheme, admissionregistrationv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	admin := connect(t, s.Kubeconfig)
	c, err := client.New(s.Config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	for _, dir := range []string{filepath.Join("crd", "bases"), "rbac"} {
		_, err := apiserver.Apply(t.Context(), admin, filepath.Join("..", "..", "config", dir))
		require.NoError(t, err)
	}
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}))
	objects, err := explain.Read([]byte(guarded))
	require.NoError(t, err)
	for _, o := range objects {
		require.Eventually(t, func() bool { // the API server takes a moment to serve a new type
			err = c.Create(t.Context(), o)
			return err == nil || !strings.Contains(err.Error(), "no matches for kind")
		}, wait, tick)
		require.NoError(t, err, "%s %s", o.GetKind(), o.GetName())
	}
	account, err := apiserver.AccountKubeconfig(t.Context(), s.Config, client.ObjectKey{Namespace: "refit-system", Name: "refit"})
	require.NoError(t, err)
	shown, stop := guard(t, c, account)

	patch := func(kind, name, patch string, opts ...client.PatchOption) error {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion(clusterv1.GroupVersion.String())
		if kind == "KubeadmControlPlane" {
			o.SetAPIVersion("controlplane.cluster.x-k8s.io/v1beta2")
		}
		o.SetKind(kind)
		o.SetNamespace("fleet")
		o.SetName(name)
		return c.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(patch)), opts...)
	}
	config := func(name string) string {
		return fmt.Sprintf(`{"spec":{"template":{"spec":{"bootstrap":{"configRef":{"name":%q}}}}}}`, name)
	}
	const size = `{"spec":{"machineTemplate":{"spec":{"infrastructureRef":{"name":"large"}}}}}`
	require.Eventually(t, func() bool { // it takes a moment until the API server asks, and refit has read all
		err = patch("MachineDeployment", "md", config("replaces"), client.DryRunAll)
		return err != nil
	}, wait, tick)
	require.ErrorContains(t, err, "w-1, the Machine of MachineDeployment/fleet/md, would be replaced because of spec.template.spec.bootstrap")
	require.ErrorContains(t, err, "policy keep forbids replacement")
	require.ErrorContains(t, patch("MachineDeployment", "md", config("replaces")), "spec.diskSetup")
	require.ErrorContains(t, patch("KubeadmControlPlane", "kcp", size), "m-1, the Machine of KubeadmControlPlane/fleet/kcp,")
	require.ErrorContains(t, patch("KubeadmControlPlane", "kcp", `{"spec":{"kubeadmConfigSpec":{"diskSetup":{"partitions":[{"device":"/dev/sdb","layout":true}]}}}}`), "spec.kubeadmConfigSpec.diskSetup")
	var md clusterv1.MachineDeployment
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "md"}, &md))
	require.Equal(t, "one", md.Spec.Template.Spec.Bootstrap.ConfigRef.Name, "nothing was stored")

	require.NoError(t, patch("MachineDeployment", "md", config("in-place")))
	require.NoError(t, patch("MachineDeployment", "md", `{"spec":{"replicas":3}}`))
	require.NoError(t, patch("KubeadmControlPlane", "kcp", `{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/etc/motd","content":"two"}]}}}`))
	require.NoError(t, patch("MachineDeployment", "md", `{"metadata":{"annotations":{"a":"b"}}}`))

	t.Run("a bypass is in the edit that it is for, and good once", func(t *testing.T) {
		digestOf := func(err error) string {
			require.Error(t, err)
			_, digest, found := strings.Cut(err.Error(), refitv1.BypassAnnotation+`: "`)
			require.True(t, found, err.Error())
			return digest[:16]
		}
		with := func(name, digest string) string {
			return strings.Replace(config(name), `{"spec"`, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec"`, refitv1.BypassAnnotation, digest), 1)
		}
		digest := digestOf(patch("MachineDeployment", "md", config("replaces")))
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "md"}, &md))
		require.NoError(t, c.SubResource("scale").Update(t.Context(), &md, client.WithSubResourceBody(&autoscalingv1.Scale{ // as autoscalers do it
			ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "md"}, Spec: autoscalingv1.ScaleSpec{Replicas: 4},
		})))
		require.NoError(t, patch("MachineDeployment", "md", with("replaces", digest)))
		back := digestOf(patch("MachineDeployment", "md", config("in-place"))) // there is no MachineSet that would say what w-1 is
		require.NoError(t, patch("MachineDeployment", "md", with("in-place", back)))
		require.NoError(t, patch("MachineDeployment", "md", fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, refitv1.BypassAnnotation)))
		require.NotEqual(t, digest, digestOf(patch("MachineDeployment", "md", with("replaces", digest))))
	})

	// Whoever makes a MachineHealthCheck is warned of the machines that it may have replaced. There is no object before it.
	mhc, err := explain.Read([]byte(healthCheck))
	require.NoError(t, err)
	var told warnings
	hearing := rest.CopyConfig(s.Config)
	hearing.WarningHandler = &told
	warned, err := client.New(hearing, client.Options{Scheme: scheme})
	require.NoError(t, err)
	require.NoError(t, warned.Create(t.Context(), mhc[0]))
	require.Len(t, told, 1)
	require.Contains(t, told[0], "of the 1 Machines that this selects, policy keep forbids the replacement of w-1")

	t.Run("the page is shown to whom the API server lets", func(t *testing.T) { shown.isShown(t, s.Config) })

	// While refit is away nobody is kept from anything.
	stop()
	require.NoError(t, patch("KubeadmControlPlane", "kcp", size))
}

// guard serves with refit's own rights, has the API server ask, and returns the page and what ends that refit answers.
func guard(t *testing.T, c client.Client, kubeconfig []byte) (shown page, stop func()) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "kubeconfig")
	require.NoError(t, os.WriteFile(file, kubeconfig, 0o600))
	port := func() string {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { require.NoError(t, free.Close()) }()
		return strconv.Itoa(free.Addr().(*net.TCPAddr).Port)
	}
	admission, at := port(), port()
	bundle, err := webhook.WriteSelfSigned(dir, []string{"127.0.0.1"}, time.Now())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "refit-node-linux-amd64"), []byte("no node is reached here"), 0o600))
	cmd := server.NewCommand("test")
	cmd.SetArgs([]string{
		"--kubeconfig=" + file, "--webhook-host=127.0.0.1", "--webhook-port=" + port(), "--webhook-cert-dir=" + dir, "--agent-dir=" + dir,
		"--admission-port=" + admission, "--guard", "--health-addr=127.0.0.1:" + port(), "--diagnostics-address=127.0.0.1:" + port(), "--insecure-diagnostics",
		"--ui", "--ui-address=127.0.0.1:" + at,
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	content, err := os.ReadFile(filepath.Join("..", "..", "config", "components", "guard", "validatingwebhook.yaml"))
	require.NoError(t, err)
	var asks admissionregistrationv1.ValidatingWebhookConfiguration
	require.NoError(t, yaml.UnmarshalStrict(content, &asks))
	url := "https://127.0.0.1:" + admission + *asks.Webhooks[0].ClientConfig.Service.Path
	asks.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: bundle}
	require.NoError(t, c.Create(t.Context(), &asks))
	return page{"https://127.0.0.1:" + at, bundle}, func() {
		cancel()
		require.NoError(t, <-ended)
	}
}
