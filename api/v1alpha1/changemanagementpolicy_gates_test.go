package v1alpha1

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhatIsAGate holds what an API server refuses before refit sees it.
func TestWhatIsAGate(t *testing.T) {
	definition := crd(t, "../../config/crd/bases/capi-refit.dev_changemanagementpolicies.yaml")
	const query = `prometheus: {url: "https://prometheus:9090", query: up, mustBe: {operator: Equal, value: "1"}}`
	object := func(fields string) string {
		return `cel: {expression: "web.ready", objects: [{name: web, objectName: web, ` + fields + `}]}`
	}
	deployment := "apiVersion: apps/v1, kind: Deployment"
	for name, tc := range map[string]struct {
		gate string
		err  string // empty: it is taken
	}{
		"a query":               {query, ""},
		"a query with a Secret": {strings.Replace(query, "}}", `}, auth: {secretRef: {name: s}}}`, 1), ""},
		"an object":             {object("cluster: Management, " + deployment), ""},
		"one elsewhere":         {object("cluster: Workload, namespace: shop, " + deployment), ""},
		"nothing":               {"onError: Ignore", "a gate is either prometheus or cel"},
		"both":                  {query + "\n      " + object("cluster: Management, "+deployment), "a gate is either prometheus or cel"},
		"another namespace":     {object("cluster: Management, namespace: kube-system, " + deployment), "objects of the management cluster are those of the policy's namespace"},
		"a Secret":              {object("cluster: Workload, namespace: shop, apiVersion: v1, kind: Secret"), "a gate can't be about Secrets"},
		"a KubeadmConfig":       {object("cluster: Management, apiVersion: bootstrap.cluster.x-k8s.io/v1beta2, kind: KubeadmConfig"), "a gate can't be about what nodes are bootstrapped from"},
		"another scheme":        {strings.Replace(query, "https:", "file:", 1), "should match"},
		"a user in the URL":     {strings.Replace(query, "prometheus:9090", "ann:x@prometheus:9090", 1), "should match"},
		"no operator":           {strings.Replace(query, "Equal", "<", 1), "Unsupported value"},
		"no number":             {strings.Replace(query, `"1"`, `"NaN"`, 1), "should match"},
		"onError":               {query + "\n      onError: Open", "Unsupported value"},
		"a cluster":             {object("cluster: Moon, " + deployment), "Unsupported value"},
		"a variable":            {strings.Replace(object("cluster: Management, "+deployment), "name: web,", "name: a-b,", 1), "should match"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := admit(t, definition, `
apiVersion: capi-refit.dev/v1alpha1
kind: ChangeManagementPolicy
metadata: {name: a, namespace: fleet}
spec:
  strategy: Permissive
  gates:
    - name: errors
      `+tc.gate)
			if tc.err == "" {
				require.Empty(t, errs)
				return
			}
			require.NotEmpty(t, errs)
			require.ErrorContains(t, errs.ToAggregate(), tc.err)
		})
	}
}
