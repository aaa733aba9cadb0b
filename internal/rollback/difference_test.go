package rollback

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
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

// What Cluster API asks about a Machine of a MachineDeployment is about its MachineSet, with the templates of both sides.
func TestQuestionOfAWorkerIsThatOfItsMachineSet(t *testing.T) {
	w := worker(t)
	request, err := w.rollback().Question(w.t.Context(), machineKey)
	require.NoError(t, err)
	asked := gjson.ParseBytes(request)
	require.Equal(t, "CanUpdateMachineSetRequest", asked.Get("kind").Str)
	for _, side := range []string{"current", "desired"} {
		require.Equal(t, "MachineSet", asked.Get(side+".machineSet.kind").Str)
		require.NotEmpty(t, asked.Get(side+".infrastructureMachineTemplate.spec.template.spec").Raw)
		require.NotEmpty(t, asked.Get(side+".bootstrapConfigTemplate.spec.template.spec").Raw)
	}
	const version = ".machineSet.spec.template.spec.version"
	require.NotEqual(t, asked.Get("current"+version).Str, asked.Get("desired"+version).Str)
	require.Equal(t, "v1.36.0", asked.Get("desired"+version).Str)
	const files = ".bootstrapConfigTemplate.spec.template.spec.files"
	require.NotEqual(t, asked.Get("current"+files).Raw, asked.Get("desired"+files).Raw)

	w.edit(kindOfCluster("MachineDeployment"), "workers", "gone", "spec", "template", "spec", "infrastructureRef", "name")
	_, err = w.rollback().Question(w.t.Context(), machineKey)
	require.Error(t, err)
}

// Of a control plane each Machine is asked about, with the objects that it has and what a dry run makes of them.
func TestQuestionOfAControlPlaneMachine(t *testing.T) {
	w := first(t)
	request, err := w.rollback().Question(w.t.Context(), machineKey)
	require.NoError(t, err)
	asked := gjson.ParseBytes(request)
	require.Equal(t, "CanUpdateMachineRequest", asked.Get("kind").Str)
	require.Equal(t, asked.Get("current.machine").Raw, asked.Get("desired.machine").Raw)
	require.Equal(t, asked.Get("current.infrastructureMachine").Raw, asked.Get("desired.infrastructureMachine").Raw)
	require.Equal(t, "two\n", asked.Get("current.bootstrapConfig.spec.files.0.content").Str)
	require.NotEqual(t, "two\n", asked.Get("desired.bootstrapConfig.spec.files.0.content").Str)
	require.Equal(t, "two\n", fileOf(w), "nothing is written")
}
