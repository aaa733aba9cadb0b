package bootimage

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// running is a Machine that runs a version and whose infrastructure machine was made from the template t1, and names an image.
func running(name, version, image string) []client.Object {
	return []client.Object{capiMachine(name, "Metal3Machine", func(m *clusterv1.Machine) { m.Spec.Version = version }), madeFrom(metal(name, image))}
}

func TestStaleTemplates(t *testing.T) {
	const old, system = "http://images/k8s-v1.35.4.qcow2", "http://images/ubuntu-24.04.1.qcow2"
	for name, tc := range map[string]struct {
		objects []client.Object
		edits   []edit
		// status is empty where there is no condition.
		status metav1.ConditionStatus
		says   string
	}{
		"an older image": {
			objects: all(running("b", "v1.36.1", old), running("a", "v1.36.1", old), running("c", "v1.35.4", old)), status: metav1.ConditionTrue,
			says: "Metal3MachineTemplate t1 names image.url=" + old + ", and Machine a is of v1.36.1; give",
		},
		"the newest is told":        {objects: all(running("a", "v1.35.9", old), running("b", "v1.36.1", old)), status: metav1.ConditionTrue, says: "Machine b is of v1.36.1"},
		"the same version":          {objects: running("a", "v1.35.4", old), status: metav1.ConditionFalse},
		"a newer image":             {objects: running("a", "v1.34.9", old), status: metav1.ConditionFalse},
		"a version of a system":     {objects: running("a", "v1.36.1", system)},
		"a version of Talos":        {objects: running("a", "v1.36.1", "http://images/talos-v1.12.0-amd64.qcow2")},
		"a runtime's beside it":     {objects: running("a", "v1.36.1", "http://images/ubuntu-24.04-k8s-v1.36.1-crio-1.34.2.qcow2"), status: metav1.ConditionFalse},
		"Bottlerocket's":            {objects: running("a", "v1.36.1", "http://images/bottlerocket-aws-k8s-1.36-x86_64-1.26.2.img")},
		"an image without one":      {objects: running("a", "v1.36.1", "http://images/x.qcow2")},
		"a pattern of its own":      {objects: running("a", "v1.36.1", old), edits: []edit{func(s *spec) { s.VersionPattern = `v(\d+\.\d+\.\d+)` }}},
		"a Machine without version": {objects: running("a", "", old)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(tc.objects, policy("a", tc.edits...))...)
			w.show()
			c := w.condition(refitv1.StaleTemplatesCondition)
			if tc.status == "" {
				require.Nil(t, c)
				return
			}
			require.Equal(t, tc.status, c.Status)
			require.Contains(t, c.Message, tc.says)
			value := "0"
			if tc.status == metav1.ConditionTrue {
				value = "1"
			}
			require.NoError(t, testutil.CollectAndCompare(&Collector{Client: w}, strings.NewReader(
				"# HELP refit_stale_templates Whether templates would make machines with an older version of Kubernetes than machines run that the BootImagePolicy selects: 0 no; 1 yes.\n"+
					"# TYPE refit_stale_templates gauge\nrefit_stale_templates{namespace=\"fleet\",policy=\"a\"} "+value+"\n"), "refit_stale_templates"))
		})
	}
}
