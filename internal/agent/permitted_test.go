package agent

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// Between the plan and the work somebody may change the node: what was decided for the plan says nothing about what that takes.
func TestNothingBeginsThatTakesMoreThanWasPermitted(t *testing.T) {
	n := newTestNode(t)
	n.succeed(request(1, "/etc/kubelet/a", "ours"))
	again := request(2, "/etc/kubelet/a", "ours")
	require.Empty(t, n.plan(again).Actions)
	n.put("/etc/kubelet/a", "changed by hand")
	before := len(n.units.calls)

	again.Repair, again.Permitted = true, []disruption.Action{}
	assert.Contains(t, n.refuse(again, node.ReasonChanged), "which is Restart kubelet.service by now, too")
	assert.Len(t, n.units.calls, before)
	assert.Equal(t, "changed by hand", n.content("/etc/kubelet/a"))

	again.Permitted = n.plan(again).Actions
	n.succeed(again)
	assert.Equal(t, "ours", n.content("/etc/kubelet/a"))
}

// What disturbs the node by itself begins no more than an action does, where nothing that disturbs was permitted.
func TestNothingBeginsThatDisturbsWhereThatWasNotPermitted(t *testing.T) {
	const manifest = "/etc/kubernetes/manifests/app.yaml"
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: app}\nspec: {containers: [{name: app, image: app}]}\n"
	n := newTestNode(t)
	first := request(1, manifest, pod)
	first.Rules = disruption.Rules{Files: disruption.Table{{Path: "/etc/kubernetes", Actions: []disruption.Action{{Type: disruption.None}}}}}
	n.succeed(first)
	n.delete(manifest)

	again := first
	again.Token, again.Repair, again.Quiet = 2, true, true
	again.Permitted = n.plan(again).Actions
	require.True(t, n.plan(again).Disturbs())
	require.Contains(t, n.refuse(again, node.ReasonChanged), "which disturbs it by now")
	again.Quiet = false
	n.succeed(again)
	require.Equal(t, pod, n.content(manifest))
}

// Who has seen work under way is told how it has ended, and begins nothing.
func TestWorkThatWasSeenUnderWayDoesNotBeginAgain(t *testing.T) {
	n := newTestNode(t)
	first := request(1, "/etc/kubelet/a", "ours")
	status := n.succeed(first)
	n.put("/etc/kubelet/a", "changed by hand")

	again := request(2, "/etc/kubelet/a", "ours")
	again.Digest, again.Repair, again.UnderWay = first.Digest, true, true
	assert.Equal(t, status.Token, n.succeed(again).Token, "the run that has ended")
	assert.Equal(t, "changed by hand", n.content("/etc/kubelet/a"))

	again.UnderWay = false
	n.succeed(again)
	assert.Equal(t, "ours", n.content("/etc/kubelet/a"))
}
