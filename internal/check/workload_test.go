package check

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// workloadAPI is the API server of a workload cluster, which allows all but what is refused.
func workloadAPI(t *testing.T, refused func(authorizationv1.ResourceAttributes) bool) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SelfSubjectAccessReview
		if !strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews") || json.NewDecoder(r.Body).Decode(&review) != nil {
			http.Error(w, "it is not asked about anything else", http.StatusTeapot)
			return
		}
		review.Status.Allowed = !refused(*review.Spec.ResourceAttributes)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

func TestMistakesInWorkloadClusters(t *testing.T) {
	all := func(authorizationv1.ResourceAttributes) bool { return false }
	away := &rest.Config{Host: "http://127.0.0.1:1"}
	for name, tc := range map[string]struct {
		cfg   *rest.Config
		err   error
		level Level
		says  string
	}{
		"all is well": {workloadAPI(t, all), nil, Good, "allows what refit does"},
		"no right to evict": {
			workloadAPI(t, func(a authorizationv1.ResourceAttributes) bool { return a.Subresource == "eviction" }), nil, Error, "does not allow: create pods/eviction",
		},
		"no right to the node leases": {
			workloadAPI(t, func(a authorizationv1.ResourceAttributes) bool { return a.Resource == "leases" && a.Verb == "update" }), nil, Error, "does not allow: update leases",
		},
		"it does not answer":  {away, nil, Warning, "does not answer from here"},
		"no kubeconfig of it": {nil, errors.New("there is no Secret prod-refit-kubeconfig"), Warning, "there is no Secret"},
	} {
		t.Run(name, func(t *testing.T) {
			all := newFleet(t).run(func(c *Checker) {
				c.Workload = func(_ context.Context, cluster types.NamespacedName) (*rest.Config, error) {
					require.Equal(t, "fleet/prod", cluster.String())
					return tc.cfg, tc.err
				}
			})
			last := all[slices.IndexFunc(all, func(one Finding) bool { return one.Check == "workload" })]
			require.Equal(t, tc.level, last.Level, "%+v", last)
			require.Contains(t, last.Message, tc.says)
			require.Equal(t, tc.level != Good, last.Do != "")
		})
	}
}

// TestWhatIsAskedForIsWhatIsGiven compares the rights that are looked for with those of config/workload.
func TestWhatIsAskedForIsWhatIsGiven(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "config", "workload", "rbac.yaml"))
	require.NoError(t, err)
	var rules []rbacv1.PolicyRule
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		var role rbacv1.ClusterRole
		require.NoError(t, yaml.Unmarshal([]byte(document), &role))
		rules = append(rules, role.Rules...)
	}
	for _, right := range rights {
		resource := strings.Trim(right.Resource+"/"+right.Subresource, "/")
		require.True(t, slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, right.Group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, right.Verb)
		}), "%+v is not in config/workload", right)
	}
}
