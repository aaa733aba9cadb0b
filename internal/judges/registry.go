package judges

import (
	"fmt"

	"github.com/capi-refit/refit/internal/nodedisruption"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/controlplane"
	"github.com/capi-refit/refit/updaters/declared"
	"github.com/capi-refit/refit/updaters/files"
	"github.com/capi-refit/refit/updaters/image"
	"github.com/capi-refit/refit/updaters/inert"
	"github.com/capi-refit/refit/updaters/kubelet"
	"github.com/capi-refit/refit/updaters/ntp"
	"github.com/capi-refit/refit/updaters/users"
	kubernetesversion "github.com/capi-refit/refit/updaters/version"
)

// List returns the function that makes the updaters, by what holds for the Machines that they are to judge: refit's own, which are listed
// nowhere else, and then others. Two of a name are an error of that function.
func List(others ...updaters.Constructor) func(e nodedisruption.Effective) (*updaters.Registry, error) {
	return func(e nodedisruption.Effective) (*updaters.Registry, error) {
		all := []updaters.Updater{
			inert.New(e.FutureOnly), // first: the others' reasons say more, and the last one is shown
			declared.New(e.Inert),
			files.New(e.Rules),
			users.New(e.Rules),
			ntp.New(e.Rules),
			kubelet.New(e.Rules),
			controlplane.New(e.Rules),
			image.New(nil),                      // Select has it judge, which knows the BootImagePolicies of a machine
			kubernetesversion.New(e.Rules, nil), // Select has it judge, which knows the KubernetesSource of a machine
		}
		for i, construct := range others {
			if construct == nil {
				return nil, fmt.Errorf("updater %d of those that refit.Main is called with is nil", i+1)
			}
			all = append(all, construct(e.Rules))
		}
		return updaters.NewRegistry(all...)
	}
}
