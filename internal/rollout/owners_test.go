package rollout

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/reconcilers/machinedeployment/mdutil"

	"github.com/capi-refit/refit/internal/fieldset"
)

const deployment = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: workers, namespace: fleet}
spec:
  clusterName: prod
  replicas: 3
  template:
    metadata: {labels: {pool: a}}
    spec:
      clusterName: prod
      version: v1.36.1
      bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: config-1}}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevMachineTemplate, name: infra-1}
`

const controlPlane = `
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: cp, namespace: fleet}
spec:
  replicas: 3
  version: v1.36.1
  machineTemplate: {spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevMachineTemplate, name: infra-1}}}
  kubeadmConfigSpec:
    files: [{path: /etc/a, content: one}]
`

const topology = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: prod, namespace: fleet}
spec:
  topology:
    classRef: {name: class}
    version: v1.36.1
    variables: [{name: password, value: one}]
    workers: {machineDeployments: [{class: default, name: md-0, replicas: 3}]}
`

// edit sets a field of an object, given as YAML. An empty value takes it away.
type edit struct {
	path  []string
	value string
}

func object(t *testing.T, text string, edits ...edit) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &o.Object))
	for _, e := range edits {
		if e.value == "" {
			unstructured.RemoveNestedField(o.Object, e.path...)
			continue
		}
		data, err := yaml.YAMLToJSON([]byte(e.value))
		require.NoError(t, err)
		value, err := fieldset.Decode(data)
		require.NoError(t, err)
		require.NoError(t, unstructured.SetNestedField(o.Object, value, e.path...))
	}
	return o
}

func at(value string, path ...string) edit { return edit{path, value} }

func TestReasons(t *testing.T) {
	for name, c := range map[string]struct {
		of   string
		edit edit
		want []string
	}{
		"deployment: version":        {deployment, at("v1.36.2", "spec", "template", "spec", "version"), []string{"spec.template.spec.version"}},
		"deployment: another config": {deployment, at("config-2", "spec", "template", "spec", "bootstrap", "configRef", "name"), []string{"spec.template.spec.bootstrap"}},
		"deployment: another infrastructure": {
			deployment, at("infra-2", "spec", "template", "spec", "infrastructureRef", "name"), []string{"spec.template.spec.infrastructureRef"},
		},
		"deployment: failure domain":    {deployment, at("b", "spec", "template", "spec", "failureDomain"), []string{"spec.template.spec.failureDomain"}},
		"deployment: labels":            {deployment, at("{pool: b}", "spec", "template", "metadata", "labels"), nil},
		"deployment: annotations":       {deployment, at("{a: b}", "spec", "template", "metadata", "annotations"), nil},
		"deployment: drain timeout":     {deployment, at("{nodeDrainTimeoutSeconds: 5}", "spec", "template", "spec", "deletion"), nil},
		"deployment: taints":            {deployment, at("[{key: a, effect: NoSchedule, propagation: Always}]", "spec", "template", "spec", "taints"), nil},
		"deployment: minReadySeconds":   {deployment, at("30", "spec", "template", "spec", "minReadySeconds"), nil},
		"deployment: replicas":          {deployment, at("9", "spec", "replicas"), nil},
		"deployment: strategy":          {deployment, at("{type: OnDelete}", "spec", "rollout", "strategy"), nil},
		"control plane: version":        {controlPlane, at("v1.36.2", "spec", "version"), []string{"spec.version"}},
		"control plane: file":           {controlPlane, at("[{path: /etc/a, content: two}]", "spec", "kubeadmConfigSpec", "files"), []string{`spec.kubeadmConfigSpec.files[path="/etc/a"].content`}},
		"control plane: infrastructure": {controlPlane, at("infra-2", "spec", "machineTemplate", "spec", "infrastructureRef", "name"), []string{"spec.machineTemplate.spec.infrastructureRef"}},
		"control plane: DNS":            {controlPlane, at("{dns: {imageTag: v1.13}}", "spec", "kubeadmConfigSpec", "clusterConfiguration"), nil},
		"control plane: init": {
			controlPlane, at("{nodeRegistration: {name: x}}", "spec", "kubeadmConfigSpec", "initConfiguration"), nil,
		},
		"control plane: discovery": {
			controlPlane, at("{discovery: {bootstrapToken: {token: a.b}}}", "spec", "kubeadmConfigSpec", "joinConfiguration"), nil,
		},
		"control plane: how long a component may take": {
			controlPlane, at("{timeouts: {controlPlaneComponentHealthCheckSeconds: 5}}", "spec", "kubeadmConfigSpec", "joinConfiguration"), nil,
		},
		"control plane: a default that is written down": {controlPlane, at("cloud-config", "spec", "kubeadmConfigSpec", "format"), nil},
		"control plane: another format":                 {controlPlane, at("ignition", "spec", "kubeadmConfigSpec", "format"), []string{"spec.kubeadmConfigSpec.format"}},
		"control plane: no taints at all": {
			controlPlane, at("{nodeRegistration: {taints: []}}", "spec", "kubeadmConfigSpec", "joinConfiguration"),
			[]string{"spec.kubeadmConfigSpec.joinConfiguration.nodeRegistration.taints"},
		},
		"control plane: labels":   {controlPlane, at("{a: b}", "spec", "machineTemplate", "metadata", "labels"), nil},
		"control plane: timeouts": {controlPlane, at("{nodeDrainTimeoutSeconds: 5}", "spec", "machineTemplate", "spec", "deletion"), nil},
		"topology: version":       {topology, at("v1.36.2", "spec", "topology", "version"), []string{"spec.topology.version"}},
		"topology: class":         {topology, at("other", "spec", "topology", "classRef", "name"), []string{"spec.topology.classRef"}},
		"topology: variables":     {topology, at("[{name: password, value: two}]", "spec", "topology", "variables"), []string{"spec.topology.variables"}},
		"topology: replicas":      {topology, at("[{class: default, name: md-0, replicas: 5}]", "spec", "topology", "workers", "machineDeployments"), nil},
		"topology: class of workers": {
			topology, at("[{class: gpu, name: md-0, replicas: 3}]", "spec", "topology", "workers", "machineDeployments"),
			[]string{`spec.topology.workers.machineDeployments[name="md-0"].class`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := object(t, c.of), object(t, c.of, c.edit)
			for _, sides := range [][2]*unstructured.Unstructured{{from, to}, {to, from}} {
				reasons, err := Reasons(t.Context(), sides[0], sides[1])
				require.NoError(t, err)
				require.ElementsMatch(t, c.want, reasons)
				same, err := SameMachines(t.Context(), sides[0], sides[1])
				require.NoError(t, err)
				require.Equal(t, len(c.want) == 0, same)
			}
			if from.GetKind() == "MachineDeployment" {
				requireAsClusterAPI(t, from, to, len(c.want) == 0)
			}
		})
	}
}

func TestWhatOnlyTheFirstMachineHas(t *testing.T) {
	from := object(t, controlPlane)
	for value, want := range map[string][]string{
		"{skipPhases: [addon/kube-proxy]}":                         {"spec.kubeadmConfigSpec.initConfiguration.skipPhases"},
		"{nodeRegistration: {name: x}}":                            {"spec.kubeadmConfigSpec.initConfiguration.nodeRegistration.name"},
		"{nodeRegistration: {imagePullPolicy: IfNotPresent}}":      nil,
		"{timeouts: {controlPlaneComponentHealthCheckSeconds: 5}}": nil,
	} {
		got, err := InitReasons(t.Context(), from, object(t, controlPlane, at(value, "spec", "kubeadmConfigSpec", "initConfiguration")))
		require.NoError(t, err)
		if len(want) == 0 {
			require.Empty(t, got)
			continue
		}
		require.Len(t, got, 1)
		require.Contains(t, want[0], got[0])
	}
	none, err := InitReasons(t.Context(), object(t, deployment), object(t, deployment, at("v1.36.2", "spec", "template", "spec", "version")))
	require.NoError(t, err)
	require.Empty(t, none)
	_, err = InitReasons(t.Context(), from, object(t, controlPlane, at("", "spec", "version")))
	require.Error(t, err)
}

// requireAsClusterAPI has Cluster API's own function compare the templates.
func requireAsClusterAPI(t *testing.T, from, to *unstructured.Unstructured, same bool) {
	t.Helper()
	var a, b clusterv1.MachineDeployment
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, &a))
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(to.Object, &b))
	upToDate, _ := mdutil.MachineTemplateUpToDate(&a.Spec.Template, &b.Spec.Template)
	require.Equal(t, same, upToDate)
}

func TestReasonsThatCannotBeTold(t *testing.T) {
	for name, sides := range map[string][2]*unstructured.Unstructured{
		"two kinds":       {object(t, deployment), object(t, controlPlane)},
		"another kind":    {object(t, "kind: Service"), object(t, "kind: Service")},
		"not of its type": {object(t, deployment), object(t, deployment, at("1", "spec", "template"))},
		"a field of a newer version": {
			object(t, controlPlane), object(t, controlPlane, at("yes", "spec", "kubeadmConfigSpec", "ofTheFuture")),
		},
		"no version": {object(t, controlPlane), object(t, controlPlane, at("", "spec", "version"))},
	} {
		t.Run(name, func(t *testing.T) {
			same, err := SameMachines(t.Context(), sides[0], sides[1])
			require.Error(t, err)
			require.False(t, same)
		})
	}
}

func TestCompareNeedsBothConfigs(t *testing.T) {
	_, err := Compare(t.Context(), Made{}, Made{Bootstrap: &fieldset.Spec{}})
	require.ErrorIs(t, err, ErrBootstrap)

	now := Made{Machine: MachineSpec(map[string]any{"version": "v1", "taints": []any{}}), Bootstrap: &fieldset.Spec{Value: map[string]any{"a": "b"}}}
	wanted := Made{Machine: MachineSpec(map[string]any{"version": "v2"}), Bootstrap: &fieldset.Spec{Value: map[string]any{"a": "c"}}}
	change, err := Compare(t.Context(), now, wanted)
	require.NoError(t, err)
	require.Len(t, change.Fields(), 2)
}

func TestWhatIsComparedStaysAsItIs(t *testing.T) {
	spec := object(t, controlPlane, at("{discovery: {bootstrapToken: {token: a.b}}}", "spec", "kubeadmConfigSpec", "joinConfiguration")).Object["spec"]
	before := runtime.DeepCopyJSONValue(spec)
	Compared(spec)
	require.Equal(t, before, spec)
	require.Empty(t, Compared(nil))
}
