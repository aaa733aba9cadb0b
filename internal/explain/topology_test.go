package explain

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
)

const topology = `
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: prod, namespace: fleet}
spec:
  topology:
    classRef: {name: class}
    version: v1.36.1
    variables: [{name: password, value: secret-one}]
    controlPlane: {replicas: 3}
    workers: {machineDeployments: [{class: default, name: md-0, replicas: 2, rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}}}]}
`

const class = `
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: ClusterClass
metadata: {name: class, namespace: fleet}
spec:
  infrastructure: {templateRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta2, kind: DevClusterTemplate, name: cluster}}
  controlPlane:
    templateRef: {apiVersion: controlplane.cluster.x-k8s.io/v1beta2, kind: KubeadmControlPlaneTemplate, name: cp}
    machineInfrastructure: {templateRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta2, kind: DevMachineTemplate, name: infra}}
  workers:
    machineDeployments:
      - class: default
        bootstrap: {templateRef: {apiVersion: bootstrap.cluster.x-k8s.io/v1beta2, kind: KubeadmConfigTemplate, name: config}}
        infrastructure: {templateRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta2, kind: DevMachineTemplate, name: infra}}
  patches: []
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlaneTemplate
metadata: {name: cp, namespace: fleet}
spec: {template: {spec: {rollout: {strategy: {rollingUpdate: {maxSurge: 0}}}, kubeadmConfigSpec: {files: [{path: /etc/cp, content: one}], initConfiguration: {nodeRegistration: {name: first}}}}}}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: config, namespace: fleet}
spec: {template: {spec: {files: [{path: /etc/md, content: one}]}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DevMachineTemplate
metadata: {name: infra, namespace: fleet}
spec: {template: {spec: {backend: {inMemory: {}}}}}
`

// patches are those of a ClusterClass that uses a variable, and builtin those of one that goes by the version.
const (
	patches = "patches: [{name: p, definitions: [{selector: {apiVersion: a/v1, kind: A}, jsonPatches: [{op: add, path: /a, valueFrom: {variable: password}}]}]}]"
	builtin = "patches: [{name: p, definitions: [{selector: {apiVersion: a/v1, kind: A}, jsonPatches: [{op: add, path: /a, valueFrom: {variable: builtin.controlPlane.version}}]}]}]"
)

func TestTopology(t *testing.T) {
	for name, c := range map[string]struct {
		from, to                 []string
		without                  bool // the ClusterClass
		controlPlane, deployment Verdict
		says                     string
	}{
		"nothing differs":                   {controlPlane: None, deployment: None},
		"version":                           {to: []string{"v1.36.1", "v1.36.2"}, controlPlane: InPlace, deployment: InPlace, says: "spec.topology.version"},
		"version, without the class":        {to: []string{"v1.36.1", "v1.36.2"}, without: true, controlPlane: InPlace, deployment: InPlace},
		"the template of workers":           {to: []string{"/etc/md", "/etc/bad"}, controlPlane: None, deployment: Replace, says: "the templates of ClusterClass fleet/class"},
		"the template of the control plane": {to: []string{"path: /etc/cp, content: one", "path: /etc/cp, content: two"}, controlPlane: InPlace, deployment: None},
		"what only the first machine has":   {to: []string{"name: first", "name: other"}, controlPlane: Unknown, deployment: None, says: "if it is still there"},
		"the infrastructure of both":        {to: []string{"inMemory: {}", "inMemory: {bad: yes}"}, controlPlane: Replace, deployment: Replace},
		"another class":                     {to: []string{"classRef: {name: class}", "classRef: {name: other}"}, controlPlane: Unknown, deployment: Unknown, says: "ClusterClass fleet/other"},
		"a variable, and no patches":        {to: []string{"secret-one", "secret-two"}, controlPlane: None, deployment: None},
		"a variable, and patches": {
			from: []string{"patches: []", patches}, to: []string{"patches: []", patches, "secret-one", "secret-two"}, controlPlane: Unknown, deployment: Unknown, says: `spec.topology.variables[name=\"password\"]`,
		},
		"a variable, without the class": {to: []string{"secret-one", "secret-two"}, without: true, controlPlane: Unknown, deployment: Unknown},
		"other patches":                 {to: []string{"patches: []", patches}, controlPlane: Unknown, deployment: Unknown},
		"version, with patches":         {from: []string{"patches: []", patches}, to: []string{"patches: []", patches, "v1.36.1", "v1.36.2"}, controlPlane: InPlace, deployment: InPlace, says: "are not applied here"},
		"version, by which patches go":  {from: []string{"patches: []", builtin}, to: []string{"patches: []", builtin, "v1.36.1", "v1.36.2"}, controlPlane: Unknown, deployment: Unknown, says: "by which patches go"},
		"failure domain":                {to: []string{"name: md-0,", "name: md-0, failureDomain: bad,"}, controlPlane: None, deployment: InPlace, says: ".failureDomain"},
		"replicas":                      {to: []string{"replicas: 2", "replicas: 5"}, controlPlane: None, deployment: New},
	} {
		t.Run(name, func(t *testing.T) {
			text := topology + class
			if c.without {
				text = topology
			}
			f := compare(t, set(t, text, c.from...), set(t, text, c.to...))
			require.Len(t, f.Owners, 2)
			require.Equal(t, c.controlPlane, of(t, f, "Cluster/prod control plane").Verdict)
			require.Equal(t, c.deployment, of(t, f, "Cluster/prod MachineDeployment md-0").Verdict)
			told, err := json.Marshal(f)
			require.NoError(t, err)
			require.Contains(t, string(told), c.says)
			require.NotContains(t, string(told), "secret")
		})
	}
}

func TestWhenATopologyReplacesItsControlPlane(t *testing.T) {
	const cp = "Cluster/prod control plane"
	past := of(t, compare(t, set(t, topology+class), set(t, topology+class, "controlPlane: {replicas: 3}", `controlPlane: {replicas: 3, rollout: {after: "2026-10-03T19:00:00Z"}}`)), cp)
	require.Equal(t, Replace, past.Verdict)
	require.Equal(t, Counts{Total: 3, Replaced: 3}, past.Machines)
	coming := of(t, compare(t, set(t, topology+class), set(t, topology+class, "controlPlane: {replicas: 3}", `controlPlane: {replicas: 3, rollout: {after: "2026-10-09T00:00:00Z"}}`)), cp)
	require.Equal(t, None, coming.Verdict)
	require.Len(t, coming.Adds, 1)
	require.Contains(t, coming.Adds[0], "replaces, from 2026-10-09T00:00:00Z on, all machines")
	before := of(t, compare(t, set(t, topology+class), set(t, topology+class, "spec: {rollout: {strategy", "spec: {rollout: {before: {certificatesExpiryDays: 21}, strategy")), cp)
	require.Len(t, before.Adds, 1)
	require.Contains(t, before.Adds[0], "21 days before their certificates end")
}

// What the topology says of a rollout goes for the whole of what its class says.
func TestTheRolloutOfATopology(t *testing.T) {
	const md = "Cluster/prod MachineDeployment md-0"
	changed := func(rollout string) *Owner {
		text := strings.Replace(topology+class, ", rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}}", rollout, 1)
		text = strings.Replace(text, "      - class: default\n", "      - class: default\n        rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}}\n", 1)
		return of(t, compare(t, set(t, text), set(t, text, "path: /etc/md, content: one", "path: /etc/md, content: two")), md)
	}
	require.Equal(t, Counts{Total: 2, InPlace: 2}, changed("").Machines)
	require.Equal(t, Counts{Total: 2, InPlace: 1, Replaced: 1}, changed(`, rollout: {after: "2020-01-01T00:00:00Z"}`).Machines)
}

func TestATemplateOfAClassOfWhichTheMetadataDiffers(t *testing.T) {
	text := strings.Replace(topology+class, "maxSurge: 0, maxUnavailable: 1", "maxSurge: 1, maxUnavailable: 0", 1)
	for was, want := range map[string][2]Verdict{
		"spec: {template: {spec: {files: [{path: /etc/md": {None, InPlace},
		"spec: {template: {spec: {backend":                {InPlace, InPlace},
		"spec: {template: {spec: {rollout":                {None, None}, // to the labels of a control plane, which rolls nothing out
	} {
		f := compare(t, set(t, text), set(t, text, was, strings.Replace(was, "{spec:", "{metadata: {labels: {a: b}}, spec:", 1)))
		require.Equal(t, want[0], of(t, f, "Cluster/prod control plane").Verdict, was)
		md := of(t, f, "Cluster/prod MachineDeployment md-0")
		require.Equal(t, want[1], md.Verdict, was)
		if want[1] == InPlace {
			require.Equal(t, Counts{Total: 2, InPlace: 1, Replaced: 1}, md.Machines)
			require.NotEmpty(t, md.Because)
		}
	}
}

// What patches may go by can't be told, unless they mention neither it nor what Cluster API itself tells them.
func TestWhatPatchesGoBy(t *testing.T) {
	const variables = "\n  variables: [{name: image, required: false, schema: {openAPIV3Schema: {type: string}}}]"
	const external = "patches: [{name: p, external: {generatePatchesExtension: a.b}}]"
	by := func(value string) string {
		return "patches: [{name: p, definitions: [{selector: {apiVersion: a/v1, kind: A}, jsonPatches: [{op: add, path: /a, valueFrom: " + value + "}]}]}]"
	}
	labels := []string{"metadata: {name: prod, namespace: fleet}", "metadata: {name: prod, namespace: fleet, labels: {proxy: b}}"}
	for name, c := range map[string]struct {
		patches string
		words   []string
		want    Verdict
	}{
		"replicas":                       {by("{variable: builtin.controlPlane.replicas}"), []string{"controlPlane: {replicas: 3}", "controlPlane: {replicas: 5}"}, Unknown},
		"the version, in a block":        {by(`{template: "{{ with .builtin.controlPlane }}{{ .version }}{{ end }}"}`), []string{"v1.36.1", "v1.36.2"}, Unknown},
		"labels":                         {by("{variable: builtin.cluster.metadata.labels}"), labels, Unknown},
		"labels, of everything":          {by(`{template: "{{ toJson . }}"}`), labels, Unknown},
		"labels, of an extension":        {external, labels, Unknown},
		"annotations":                    {external, []string{"metadata: {name: prod, namespace: fleet}", "metadata: {name: prod, namespace: fleet, annotations: {a: b}}"}, Unknown},
		"the network":                    {external, []string{"spec:\n  topology:", "spec:\n  clusterNetwork: {serviceDomain: a.b}\n  topology:"}, Unknown},
		"a default":                      {by("{variable: image}") + variables, []string{"{type: string}", "{type: string, default: evil}"}, Unknown},
		"labels that no patch mentions":  {by("{variable: password}"), labels, None},
		"a default that none mentions":   {by("{variable: password}") + variables, []string{"{type: string}", "{type: string, default: evil}"}, None},
		"a variable that none mentions":  {by("{variable: image}"), []string{"secret-one", "secret-two"}, None},
		"a variable, and what is told":   {by("{variable: builtin.cluster.name}"), []string{"secret-one", "secret-two"}, Unknown},
		"a note of kubectl and no other": {external, []string{"metadata: {name: prod, namespace: fleet}", "metadata: {name: prod, namespace: fleet, annotations: {kubectl.kubernetes.io/last-applied-configuration: a}}"}, None},
	} {
		text := strings.Replace(topology+class, "patches: []", c.patches, 1)
		f := compare(t, set(t, text), set(t, text, c.words...))
		md := of(t, f, "Cluster/prod MachineDeployment md-0")
		require.Equal(t, c.want, md.Verdict, name)
		require.Len(t, slices.Compact(slices.Clone(md.Because)), len(md.Because), "each is named once")
	}
}

func TestMachinePoolsOfATopology(t *testing.T) {
	const pool = "Cluster/prod MachinePool mp-0"
	text := strings.Replace(topology+class, "    workers: {", "    workers: {machinePools: [{class: pool, name: mp-0, replicas: 2, variables: {overrides: [{name: size, value: one}]}}], ", 1)
	require.Len(t, compare(t, set(t, text), set(t, text)).Owners, 2, "nothing differs")
	for _, words := range [][]string{
		{"{name: size, value: one}", "{name: size, value: two}"}, {"v1.36.1", "v1.36.2"}, {"name: mp-0", "name: mp-1"}, {"patches: []", patches},
		{"  workers:\n    machineDeployments:\n", "  workers:\n    machinePools: [{class: pool}]\n    machineDeployments:\n"},
	} {
		f := compare(t, set(t, text), set(t, text, words...))
		o := of(t, f, pool)
		require.Equal(t, Unknown, o.Verdict, words)
		require.Len(t, o.Notes, 1)
		require.Equal(t, Counts{Total: 2}, o.Machines)
		require.Contains(t, f.Reaches(disruption.Replace), o)
	}
}

func TestPartsOfATopologyThatComeAndGo(t *testing.T) {
	f := compare(t, set(t, topology+class), set(t, topology+class, "name: md-0", "name: md-1"))
	require.Equal(t, Deleted, of(t, f, "Cluster/prod MachineDeployment md-0").Verdict)
	require.Equal(t, New, of(t, f, "Cluster/prod MachineDeployment md-1").Verdict)

	// The Cluster is gone, and with it all of its machines.
	f = compare(t, set(t, topology+class), set(t, class))
	require.Equal(t, Counts{Total: 3, Deleted: 3}, of(t, f, "Cluster/prod control plane").Machines)
	require.Equal(t, Deleted, f.Verdict)
}

func TestAClusterWithoutATopologyThatGoes(t *testing.T) {
	const cluster = `
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: prod, namespace: fleet}
spec:
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: cp}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevCluster, name: prod}
`
	f := compare(t, set(t, base+cluster), set(t, base))
	o := of(t, f, "Cluster/prod")
	require.Equal(t, Deleted, o.Verdict)
	require.Equal(t, Counts{Total: 7, Deleted: 7}, o.Machines)
	require.Equal(t, Deleted, f.Verdict)
	require.Contains(t, f.Reaches(disruption.Replace), o)

	others := compare(t, set(t, base+cluster, "clusterName: prod", "clusterName: other"), set(t, base, "clusterName: prod", "clusterName: other"))
	require.Equal(t, Counts{Total: 3, Deleted: 3}, of(t, others, "Cluster/prod").Machines)
	require.Len(t, compare(t, set(t, base), set(t, base+cluster)).Owners, 2, "one that comes changes no machine")
	require.Len(t, compare(t, set(t, base+cluster), set(t, base+cluster)).Owners, 2)
}

func TestAClassThatNoClusterIsGivenOf(t *testing.T) {
	f := compare(t, set(t, class), set(t, class, "patches: []", patches))
	require.Empty(t, f.Owners)
	require.Contains(t, f.Notes, "ClusterClass fleet/class differs, and no Cluster that is given is made by it: add the Cluster, and its machines are told")
}
