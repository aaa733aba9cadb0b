package cli

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/internal/check"
)

// served is how the server runs that a management cluster has.
type served struct {
	// note says that it is not known how, if it counts; else it is empty.
	note string
	// alone reports that it asks no registered updaters.
	alone bool
}

// asServed takes the rules of the server that the management cluster runs, unless the command line has some: what one says the other is to do.
func (f *explainFlags) asServed(ctx context.Context, c client.Reader) (served, error) {
	given := f.rules.Given()
	unknown := func(why string) served {
		if given {
			return served{}
		}
		return served{note: "with which flags refit's server runs is not known: " + why + "; say with --allow-paths what it has"}
	}
	own, err := check.OwnDeployments(ctx, c)
	if err != nil {
		return unknown(err.Error()), nil
	}
	if len(own) != 1 {
		return unknown(fmt.Sprintf("there are %d Deployments of it", len(own))), nil
	}
	out := served{alone: true}
	for _, container := range own[0].Spec.Template.Spec.Containers {
		for _, arg := range container.Args {
			if strings.HasPrefix(arg, "--registered-updaters") && arg != "--registered-updaters=false" {
				out.alone = false
			}
		}
		if given {
			continue
		}
		if err := f.rules.TakeFrom(container.Args); err != nil {
			return served{}, fmt.Errorf("read the flags of Deployment %s/%s: %w", own[0].Namespace, own[0].Name, err)
		}
	}
	return out, nil
}
