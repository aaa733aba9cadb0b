package machineupdate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/nodedisruption"
)

// Disruptions says what changes take on nodes.
type Disruptions interface {
	// Machine returns what holds for a Machine. The error is a *nodedisruption.InvalidError if a policy must be corrected
	// first; any other one passes.
	Machine(ctx context.Context, m *clusterv1.Machine) (*nodedisruption.Selected, error)
}

// selectRules finds what holds for the Machine, or what the update waits for before that can be told. It is asked again in each
// reconciliation: policies may change until the work starts.
func (u *update) selectRules(ctx context.Context, machine *clusterv1.Machine) (*wait, error) {
	selected, err := u.Disruptions.Machine(ctx, machine)
	var invalid *nodedisruption.InvalidError
	switch {
	case errors.As(err, &invalid):
		return &wait{reason: refitv1.ReasonBlocked, message: err.Error()}, nil
	case err != nil:
		return nil, err
	}
	u.selected = selected
	return nil, nil
}

// planIsOld reports whether other policies select the Machine, or say something else, than when its node was asked for the plan in
// the MachineUpdate. A server that has not asked itself takes the plan as it is.
func (r *Reconciler) planIsOld(ctx context.Context, machine *clusterv1.Machine) bool {
	by, ok := r.plannedBy.Load(client.ObjectKeyFromObject(machine))
	if !ok {
		return false
	}
	now, err := r.Disruptions.Machine(ctx, machine)
	return err != nil || by != now.Revision
}

// blocked returns what keeps the node from being updated in place. Of what has no action, which it had when Cluster API committed
// the change, it says what to do: Cluster API itself neither takes the change back nor replaces the Machine.
func (u *update) blocked(list []node.Problem) string {
	message := "the node can't be updated in place: " + node.Problems(list)
	if u.selected == nil || !slices.ContainsFunc(list, func(p node.Problem) bool { return p.Ruled }) {
		return message
	}
	who := "no NodeDisruptionPolicy selects the Machine"
	if names := u.selected.Policies; len(names) > 0 {
		who = "NodeDisruptionPolicies that select the Machine: " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s; nothing was changed on the node; %s; Cluster API has committed the change, so have a NodeDisruptionPolicy say what it takes and the update goes on, "+
		"or delete the Machine and Cluster API makes a new one", message, who)
}
