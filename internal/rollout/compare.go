package rollout

import (
	"context"
	"errors"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/fieldset"
)

// ErrBootstrap is returned where one side has a bootstrap config and the other has none: Cluster API asks no hook about that, and replaces the machines.
var ErrBootstrap = errors.New("one side has a bootstrap config and the other has none")

// Made are the specs of what a machine is made of. They are not changed.
type Made struct {
	Machine, Infrastructure fieldset.Spec
	// Bootstrap is nil where there is no bootstrap config.
	Bootstrap *fieldset.Spec
}

// MachineSpec returns the spec of a Machine, out of decoded JSON, as far as Cluster API compares it.
func MachineSpec(value any) fieldset.Spec {
	return fieldset.Spec{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Value: fieldset.RolloutFields(value)}
}

// Compare returns what differs between machines as they are and as they are wanted.
func Compare(ctx context.Context, now, wanted Made) (fieldset.Change, error) {
	if (now.Bootstrap == nil) != (wanted.Bootstrap == nil) {
		return nil, ErrBootstrap
	}
	pairs := []pair{
		{fieldset.Machine, now.Machine, wanted.Machine},
		{fieldset.InfrastructureMachine, now.Infrastructure, wanted.Infrastructure},
	}
	if now.Bootstrap != nil {
		pairs = append(pairs, pair{fieldset.BootstrapConfig, *now.Bootstrap, *wanted.Bootstrap})
	}
	var change fieldset.Change
	for _, p := range pairs {
		one, differs, err := fieldset.Compare(ctx, p.of, p.now, p.wanted)
		if err != nil {
			return nil, fmt.Errorf("compare the %s: %w", p.of, err)
		}
		if differs {
			change = append(change, one)
		}
	}
	return change, nil
}

type pair struct {
	of          fieldset.Object
	now, wanted fieldset.Spec
}
