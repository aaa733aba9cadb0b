package explain

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
)

var now = time.Date(2026, 10, 3, 20, 0, 0, 0, time.UTC)

// judge updates in place what is in no field that has "bad" in its path, and remembers whom it was asked about.
type judge struct {
	asked []inplace.Subject
	err   error
}

func (j *judge) ExplainChange(_ context.Context, s inplace.Subject, change fieldset.Change) (*handlers.Explanation, error) {
	j.asked = append(j.asked, s)
	if j.err != nil {
		return nil, j.err
	}
	x := &handlers.Explanation{Verdict: handlers.VerdictInPlace, Disruption: disruption.None, Actions: []string{}, Fields: []handlers.FieldExplanation{}}
	for _, f := range change.Fields() {
		one := handlers.FieldExplanation{Object: f.Object, Path: f.String(), Covered: true, Updater: "tests", Disruption: disruption.Restart, Actions: []string{"Restart a.service"}}
		x.Disruption, x.Actions = disruption.Restart, one.Actions
		if strings.Contains(one.Path, "bad") {
			one.Covered, one.Disruption, one.Reason = false, disruption.Replace, "it is bad"
			x.Verdict = handlers.VerdictReplace
		}
		x.Fields = append(x.Fields, one)
	}
	if x.Verdict == handlers.VerdictReplace {
		x.Disruption, x.Actions = disruption.Replace, []string{}
	}
	return x, nil
}

// base are a control plane and workers with their templates.
const base = `
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: cp, namespace: fleet, labels: {cluster.x-k8s.io/cluster-name: prod}}
spec:
  replicas: 3
  version: v1.36.1
  rollout: {strategy: {rollingUpdate: {maxSurge: 0}}}
  machineTemplate: {spec: {infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevMachineTemplate, name: infra-1}}}
  kubeadmConfigSpec: {files: [{path: /etc/cp, content: one}]}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: workers, namespace: fleet}
spec:
  clusterName: prod
  replicas: 4
  rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 2}}}
  template:
    metadata: {labels: {pool: a}}
    spec:
      clusterName: prod
      version: v1.36.1
      bootstrap: {configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: config-1}}
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: DevMachineTemplate, name: infra-1}
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: config-1, namespace: fleet}
spec: {template: {spec: {files: [{path: /etc/a, content: secret-one}]}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DevMachineTemplate
metadata: {name: infra-1, namespace: fleet}
spec: {template: {spec: {backend: {inMemory: {}}}}}
`

// set reads objects, in which some words are others.
func set(t *testing.T, text string, words ...string) *Set {
	t.Helper()
	for i := 0; i < len(words); i += 2 {
		require.Contains(t, text, words[i])
	}
	objects, err := Read([]byte(strings.NewReplacer(words...).Replace(text)))
	require.NoError(t, err)
	s, err := NewSet(objects...)
	require.NoError(t, err)
	return s
}

func objectOf(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	objects, err := Read([]byte(text))
	require.NoError(t, err)
	require.Len(t, objects, 1)
	return objects[0]
}

func compare(t *testing.T, from, to *Set) *Forecast {
	t.Helper()
	f, err := (&Explainer{Judge: &judge{}, Now: now}).Compare(t.Context(), from, to)
	require.NoError(t, err)
	return f
}

// of returns what is said of an owner.
func of(t *testing.T, f *Forecast, title string) *Owner {
	t.Helper()
	for _, o := range f.Owners {
		if o.Title() == title {
			return o
		}
	}
	require.Failf(t, "not told", "%s", title)
	return nil
}
