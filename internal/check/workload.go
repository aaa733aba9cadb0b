package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/admin"
	"github.com/capi-refit/refit/internal/lease"
)

// rights are what refit does in a workload cluster.
var rights = []authorizationv1.ResourceAttributes{
	{Verb: "get", Resource: "nodes"}, {Verb: "list", Resource: "nodes"}, {Verb: "patch", Resource: "nodes"}, {Verb: "list", Resource: "pods"},
	{Verb: "create", Resource: "pods", Subresource: "eviction"},
	{Verb: "get", Resource: "namespaces"}, {Verb: "list", Resource: "persistentvolumes"},
	{Verb: "list", Group: "storage.k8s.io", Resource: "volumeattachments"}, {Verb: "get", Group: "apps", Resource: "daemonsets"},
	{Verb: "create", Group: "coordination.k8s.io", Resource: "leases", Namespace: lease.DefaultNamespace},
	{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: lease.DefaultNamespace},
}

// reachWithin bounds how long the API server of a workload cluster may take to answer all that it is asked, and a node.
const reachWithin = 10 * time.Second

// workload looks whether the API server of a Cluster answers, and allows what refit does there.
func (c *Checker) workload(ctx context.Context, cluster *clusterv1.Cluster) []Finding {
	const check = "workload"
	if c.Workload == nil {
		return nil
	}
	object := nameOf("Cluster", cluster)
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	cfg, err := c.Workload(ctx, client.ObjectKeyFromObject(cluster))
	switch {
	case errors.Is(err, admin.ErrNoKubeconfig):
		return []Finding{{Check: check, Level: Warning, Object: object, Message: err.Error() + ", so that refit does not reach it",
			Do: "if it is new, ask again when Cluster API has written one; else make the Secret " + cluster.Name + "-refit-kubeconfig: docs/install.md"}}
	case err != nil:
		return []Finding{unknown(check, object, err)}
	}
	cfg.Timeout = reachWithin
	reviews, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return []Finding{unknown(check, object, err)}
	}
	var missing []string
	for _, right := range rights {
		review, err := reviews.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right},
		}, metav1.CreateOptions{})
		var answered apierrors.APIStatus
		switch {
		case errors.As(err, &answered):
			return []Finding{unknown(check, object, err)}
		case err != nil:
			return []Finding{{Check: check, Level: Warning, Object: object, Message: "its API server does not answer from here: " + err.Error(),
				Do: "if refit's updates wait with the reason Workload, see why; else ask from where it can be reached, or with --workload=false"}}
		case !review.Status.Allowed:
			missing = append(missing, strings.TrimSpace(fmt.Sprintf("%s %s/%s", right.Verb, right.Resource, right.Subresource)))
		}
	}
	if len(missing) > 0 {
		return []Finding{{Check: check, Level: Error, Object: object, Message: "refit's kubeconfig does not allow: " + some(missing), Do: "apply config/workload in that cluster, and renew the Secret " + cluster.Name + "-refit-kubeconfig: docs/security.md"}}
	}
	return []Finding{good(check, object, "its API server answers and allows what refit does there")}
}
