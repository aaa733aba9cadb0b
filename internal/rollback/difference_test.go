package rollback

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func (w *world) difference() ([]string, error) {
	w.t.Helper()
	change, err := w.rollback().Difference(w.t.Context(), machineKey)
	return paths(&Plan{Change: change}), err
}

// The templates are compared, as Cluster API does: what others have written to the Machine's objects since is no difference.
func TestDifferenceOfAWorkerIsThatOfTemplates(t *testing.T) {
	w := worker(t)
	differs, err := w.difference()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"machine spec.version", "infrastructureMachine spec.bad", "infrastructureMachine spec.good", `bootstrapConfig spec.files[path="/etc/a"].content`,
	}, differs)

	w.edit(kindOfCluster("MachineDeployment"), "workers", machineSpec("v1.36.1", templateOf(configKind), templateOf(infraKind), "bad"), "spec", "template", "spec")
	differs, err = w.difference()
	require.NoError(t, err)
	require.Empty(t, differs)
}

func TestDifferenceOfAControlPlaneMachine(t *testing.T) {
	w := first(t)
	differs, err := w.difference()
	require.NoError(t, err)
	require.Equal(t, []string{`bootstrapConfig spec.files[path="/etc/a"].content`}, differs)
	require.Equal(t, "two\n", fileOf(w), "nothing is written")
}

func TestDifferenceThatCannotBeTold(t *testing.T) {
	w := worker(t)
	w.edit(kindOfCluster("MachineDeployment"), "workers", "gone", "spec", "template", "spec", "infrastructureRef", "name")
	_, err := w.difference()
	require.ErrorContains(t, err, "is not there")
	require.ErrorAs(t, err, new(*RefusedError))
}
