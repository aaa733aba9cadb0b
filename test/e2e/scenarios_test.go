//go:build e2e

package e2e

import (
	"context"
	"slices"
	"testing"
)

// scenario is one that starts from a healthy cluster and leaves one behind.
type scenario struct {
	name string
	run  func(*suite, context.Context, *testing.T)
}

// common are the scenarios for every kind of machines.
var common = []scenario{
	{"five successive changes re-create no Machine, and the first removes what only bootstrap laid down", (*suite).fiveChanges},
	{"units are reloaded and restarted as the path asks for", (*suite).actions},
	{"files come, out of a Secret too, and go; one that the node edited and the spec did not change stays", (*suite).comeAndGo},
	{"a node that is unreachable at first comes back", (*suite).unreachable},
	{"a second change while the first is under way", (*suite).secondChange},
	{"the leader is killed in the middle of an update", (*suite).leaderKilled},
	{"a Machine is deleted in the middle of an update", (*suite).machineDeleted},
	{"a Machine is deleted in the foreground in the middle of its update", (*suite).foregroundDeleted},
	{"a MachineUpdate is deleted alone in the middle of its update", (*suite).updateDeleted},
}

// fieldsBesideFiles are the scenarios of other fields, for nodes that have a program which keeps their time.
var fieldsBesideFiles = []scenario{
	{"users, time servers, labels and taints come, change and go", (*suite).otherFields},
}

// disturbances are the scenarios of what disturbs a node, where it takes no real cluster.
var disturbances = []scenario{
	{"a failed update keeps its slot", (*suite).failedKeepsItsSlot},
	{"a wrong change is taken back, of workers and of a control plane", (*suite).wrongChangeIsTakenBack},
	{"a drain waits for a PodDisruptionBudget", (*suite).drains},
	{"a node that reboots in the middle of its update resumes", (*suite).rebootResumes},
}

// conditions are the scenarios of what an update waits for, policies aside. For them it does not matter what the machines are. What replaces a
// Machine, whose node the lab does not know, comes last.
var conditions = []scenario{
	{"an admin's hold stops an update, and release has it go on", (*suite).holdStops},
	{"a foreign lease is waited for", (*suite).foreignLeaseWaits},
	{"a wrong host key is refused and nothing is sent", (*suite).wrongHostKey},
	{"a NodeAccess that is deleted and made again between two changes replaces nothing", (*suite).accessMadeAgain},
	{"a caller without an accepted certificate is refused, and updates go on", (*suite).strangersAreRefused},
	{"of a control plane of three never two are out", (*suite).oneControlPlane},
	{"a NodeDisruptionPolicy says what a change takes, and drift is repaired", (*suite).policySays},
	{"the guard refuses edits that replace protected machines, and what is made in place goes on", (*suite).theGuardRefuses},
	{"a held Machine is not scaled down, and release ends that", (*suite).heldIsNotScaledDown},
}

// windows are the scenarios of ChangeManagementPolicies. The first comes before changes that disturb.
var windows = []scenario{
	{"an update waits for a window, and what does not disturb the node does not", (*suite).waitsForTheWindow},
	{"an override lets an update go at once", (*suite).overrideLetsGo},
	{"restrictive-until stops the second machine while the first one finishes", (*suite).restrictiveStopsTheSecond},
	{"a change says when it is wanted, and a cluster is paused meanwhile", (*suite).aChangeSaysWhenItIsWanted},
	{"a manual policy has each change wait until somebody permits it", (*suite).manualWaitsForAPerson},
	{"a policy that is deleted counts until another one is in its place", (*suite).aDeletedPolicyCounts},
	{"restrictive-until holds back what disturbs no node and what is permissive elsewhere, and a bypass passes it", (*suite).aStopHoldsEverything},
	{"a health gate holds new starts, says by which value, and they begin when it holds", (*suite).aGateHoldsNewStarts},
	{"a policy that turns invalid closes", (*suite).invalidCloses},
	{"a tenant does not weaken what the platform holds back", (*suite).tenantsDontWeakenThePlatform},
	{"the API server refuses policies that can't be read or never open", (*suite).whatNeverOpensIsRefused},
	{"with replacement Forbid machines stay", (*suite).forbidKeepsTheMachines},
	{"with whenClosed Refuse nothing is committed", (*suite).refuseCommitsNothing},
	{"what waits is shown before anything is committed", (*suite).pendingShowsAll},
	{"what is told of an edit that waits is what then happens", (*suite).theForecastComesTrue},
}

// upgrades are the scenarios of clusters that are made from a ClusterClass, each from one of its own.
var upgrades = []scenario{
	{"the upgrade of a ClusterClass cluster is held back, control plane and workers each", (*suite).upgradeIsHeld},
	{"the guard refuses edits of a ClusterClass cluster that replace protected machines", (*suite).theGuardRefusesTopologies},
}

// replaces comes last: it changes what is not changed back.
var replaces = []scenario{
	{"a field that no updater claims replaces the machine, and refit says why", (*suite).unclaimedField},
}

// group is a list of scenarios that are run one after the other, on a cluster of their own, beside those of other groups.
type group struct {
	name      string
	scenarios []scenario
	// shared reports that they make the clusters that they need.
	shared bool
	// machines reports that the cluster's machines are real ones.
	machines bool
	// workers reports that the scenarios are about workers alone, so that one machine of a control plane is enough.
	workers bool
	// older is the version of Kubernetes that real machines begin with; lab.OlderMachineVersion if empty.
	older string
}

// inMemory are the groups for Cluster API's in-memory backend, with a node beside each Machine.
var inMemory = []group{
	{name: "updates", scenarios: slices.Concat(common, fieldsBesideFiles, replaces, forbiddenImages)},
	{name: "disturbances", scenarios: slices.Concat(disturbances, illness)},
	{name: "conditions", scenarios: slices.Concat(conditions, bootImages)},
	{name: "windows", scenarios: windows, workers: true},
	{name: "upgrades", scenarios: upgrades, shared: true},
}
