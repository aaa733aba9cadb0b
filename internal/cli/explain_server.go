package cli

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ownDeployments select the Deployments of refit in a management cluster.
var ownDeployments = client.MatchingLabels{"app.kubernetes.io/name": "refit"}

// asServed takes the rules of the server that the management cluster runs, unless the command line has some: what one says the other is to do. Where
// they are not known it returns a note that says so.
func (f *explainFlags) asServed(ctx context.Context, c client.Reader) (note string, err error) {
	if f.rules.Given() {
		return "", nil
	}
	const say = "; say with --allow-paths what it has"
	var list appsv1.DeploymentList
	if err := c.List(ctx, &list, ownDeployments); err != nil {
		return fmt.Sprintf("with which flags refit's server runs is not known: %v%s", err, say), nil
	}
	if len(list.Items) != 1 {
		return fmt.Sprintf("with which flags refit's server runs is not known: there are %d Deployments of it%s", len(list.Items), say), nil
	}
	for _, container := range list.Items[0].Spec.Template.Spec.Containers {
		if err := f.rules.TakeFrom(container.Args); err != nil {
			return "", fmt.Errorf("read the flags of Deployment %s/%s: %w", list.Items[0].Namespace, list.Items[0].Name, err)
		}
	}
	return "", nil
}
