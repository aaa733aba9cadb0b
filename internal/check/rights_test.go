package check

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// recorder notes what is read.
type recorder struct {
	client.Reader
	scheme *runtime.Scheme
	mu     *sync.Mutex
	read   map[metav1.GroupResource]map[string]bool // the verbs
}

func (r recorder) note(obj runtime.Object, verb string) {
	kind, err := apiutil.GVKForObject(obj, r.scheme)
	if err != nil {
		panic(err)
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	resource := metav1.GroupResource{Group: plural.Group, Resource: strings.Replace(plural.Resource, "nodeaccesss", "nodeaccesses", 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read[resource] == nil {
		r.read[resource] = map[string]bool{}
	}
	r.read[resource][verb] = true
}

func (r recorder) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	r.note(obj, "get")
	return r.Reader.Get(ctx, key, obj, opts...)
}

func (r recorder) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	r.note(list, "list")
	return r.Reader.List(ctx, list, opts...)
}

// TestOperatorsMayReadWhatIsLookedAt compares what check reads with the ClusterRole of those who operate updates, who are to run it.
func TestOperatorsMayReadWhatIsLookedAt(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", "operator.yaml"))
	require.NoError(t, err)
	var role rbacv1.ClusterRole
	require.NoError(t, yaml.UnmarshalStrict(data, &role))
	may := func(resource metav1.GroupResource, verb string) bool {
		return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, resource.Group) && slices.Contains(r.Resources, resource.Resource) && slices.Contains(r.Verbs, verb)
		})
	}
	r := recorder{mu: &sync.Mutex{}, read: map[metav1.GroupResource]map[string]bool{}}
	for _, change := range []func(*fleet){func(*fleet) {}, unguarded, func(f *fleet) { f.cluster.SetName("") }} {
		f := newFleet(t)
		change(f)
		f.run(func(c *Checker) {
			r.Reader, r.scheme = c.Client, c.Client.(client.Client).Scheme()
			c.Client = r
			c.Nodes, c.Reach = -1, func(context.Context, *clusterv1.Machine) error { return nil }
		})
	}
	require.Greater(t, len(r.read), 12, "%v", r.read)
	for resource, verbs := range r.read {
		for _, verb := range slices.Sorted(maps.Keys(verbs)) {
			require.True(t, may(resource, verb), "%s %s is read, and not in config/rbac/operator.yaml", verb, resource.String())
		}
	}
	for _, verb := range []string{"get", "list", "watch", "*"} {
		require.False(t, may(metav1.GroupResource{Resource: "secrets"}, verb), "Secrets are not for all operators")
	}
}
