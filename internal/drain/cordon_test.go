package drain

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capi-refit/refit/internal/lease"
)

// cordon is what a Node says of its cordon.
type cordon struct {
	unschedulable bool
	owner         string // "" without the annotation
}

func (c cordon) on(n *corev1.Node) {
	n.Spec.Unschedulable, n.Annotations = c.unschedulable, nil
	if c.owner != "" {
		n.Annotations = map[string]string{CordonedAnnotation: c.owner}
	}
}

func cordonOf(n *corev1.Node) cordon {
	return cordon{n.Spec.Unschedulable, n.Annotations[CordonedAnnotation]}
}

var (
	free     = cordon{}
	ours     = cordon{true, string(owner)}
	opened   = cordon{false, string(owner)}
	foreign  = cordon{true, ""}
	another  = cordon{true, "another-uid"}
	leftover = cordon{false, "another-uid"}
)

func TestCordon(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after cordon
		ours          bool
		err           error
	}{
		"a free node is cordoned and annotated":                 {before: free, after: ours, ours: true},
		"what refit has cordoned stays refit's":                 {before: ours, after: ours, ours: true},
		"what somebody has opened since is cordoned again":      {before: opened, after: ours, ours: true},
		"a foreign cordon is never annotated":                   {before: foreign, after: foreign},
		"another Machine's cordon is left alone":                {before: another, after: another, err: ErrOtherOwner},
		"another Machine's annotation without a cordon is, too": {before: leftover, after: leftover, err: ErrOtherOwner},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.edit(tc.before.on)
			version := w.node().ResourceVersion
			for range 2 {
				ours, err := w.drainer.Cordon(t.Context(), ref, owner)
				require.ErrorIs(t, err, tc.err)
				require.Equal(t, tc.ours, ours)
				require.Equal(t, tc.after, cordonOf(w.node()))
			}
			if tc.before == tc.after {
				require.Equal(t, version, w.node().ResourceVersion, "nothing is written")
			}
		})
	}
}

func TestUncordon(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after cordon
		err           error
	}{
		"what refit has cordoned is uncordoned":              {before: ours, after: free},
		"what somebody has opened loses the annotation only": {before: opened, after: free},
		"a foreign cordon stays":                             {before: foreign, after: foreign},
		"a free node stays so":                               {before: free, after: free},
		"another Machine's cordon stays, and is told":        {before: another, after: another, err: ErrOtherOwner},
		"another Machine's annotation cordons nothing":       {before: leftover, after: leftover},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.edit(tc.before.on)
			for range 2 {
				require.ErrorIs(t, w.drainer.Uncordon(t.Context(), ref, owner), tc.err)
				require.Equal(t, tc.after, cordonOf(w.node()))
			}
		})
	}
}

// clusterctl move gives a Machine another UID, and what refit has put on its Node has the former one.
func TestTheCordonOfAMachineThatWasMovedIsItsOwn(t *testing.T) {
	for name, before := range map[string]cordon{"cordoned": another, "opened since": leftover} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.drainer.Former = []types.UID{"another-uid"}
			w.edit(before.on)
			ok, err := w.drainer.Cordon(t.Context(), ref, owner)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, ours, cordonOf(w.node()))

			w.edit(before.on)
			require.NoError(t, w.drainer.Uncordon(t.Context(), ref, owner))
			require.Equal(t, free, cordonOf(w.node()))
		})
	}
}

func TestOtherOwnerSaysHowToMend(t *testing.T) {
	w := newWorld(t)
	w.edit(another.on)
	require.EqualError(t, w.drainer.Uncordon(t.Context(), ref, owner),
		`uncordon Node w1: the Node is cordoned for another Machine, of uid "another-uid"; if there is no such Machine any more: `+
			`kubectl uncordon w1 && kubectl annotate node w1 capi-refit.dev/cordoned-`)
	w.edit(leftover.on)
	_, err := w.drainer.Cordon(t.Context(), ref, owner)
	require.ErrorContains(t, err, "any more: kubectl annotate node w1 capi-refit.dev/cordoned-")
}

func TestCordonTouchesNothingElse(t *testing.T) {
	w := newWorld(t)
	w.edit(func(n *corev1.Node) {
		n.Spec.Unschedulable, n.Annotations = false, map[string]string{"a": "b"}
		n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
	})
	before := w.node()
	_, err := w.drainer.Cordon(t.Context(), ref, owner)
	require.NoError(t, err)
	require.NoError(t, w.drainer.Uncordon(t.Context(), ref, owner))
	after := w.node()
	after.ResourceVersion = before.ResourceVersion
	require.Equal(t, before, after)
}

func TestAnotherNode(t *testing.T) {
	for name, tc := range map[string]struct {
		ref NodeRef
		err error
	}{
		"registered again": {NodeRef{"w1", "former-uid"}, lease.ErrNodeReplaced},
		"gone":             {NodeRef{"w9", "w9-uid"}, lease.ErrNodeGone},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.edit(free.on)
			_, err := w.drainer.Cordon(t.Context(), tc.ref, owner)
			require.ErrorIs(t, err, tc.err)
			w.edit(ours.on)
			require.NoError(t, w.drainer.Uncordon(t.Context(), tc.ref, owner), "there is nothing to undo")
			require.Equal(t, ours, cordonOf(w.node()))
			w.req.Node = tc.ref
			_, err = w.drainer.Pass(t.Context(), w.req)
			require.ErrorIs(t, err, tc.err)
		})
	}
}

func TestCordonNeedsToKnowWhat(t *testing.T) {
	w := newWorld(t)
	w.edit(free.on)
	for _, tc := range []struct {
		ref   NodeRef
		owner types.UID
	}{{ref, ""}, {NodeRef{Name: "w1"}, owner}, {NodeRef{UID: ref.UID}, owner}} {
		_, err := w.drainer.Cordon(t.Context(), tc.ref, tc.owner)
		require.Error(t, err)
		require.Error(t, w.drainer.Uncordon(t.Context(), tc.ref, tc.owner))
	}
	require.Equal(t, free, cordonOf(w.node()))
}

// A write whose answer is lost, and one that was never made, are mended by a repetition.
func TestCordonAfterCrash(t *testing.T) {
	for name, made := range map[string]bool{"the write was made": true, "the write was not made": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.edit(free.on)
			crash := interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if made {
					require.NoError(t, c.Patch(ctx, obj, patch, opts...))
				}
				return errAway
			}}
			w.intercept(crash)
			_, err := w.drainer.Cordon(t.Context(), ref, owner)
			require.ErrorIs(t, err, errAway)

			w.drainer.Client = w.client
			ok, err := w.drainer.Cordon(t.Context(), ref, owner)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, ours, cordonOf(w.node()))

			w.intercept(crash)
			require.ErrorIs(t, w.drainer.Uncordon(t.Context(), ref, owner), errAway)

			w.drainer.Client = w.client
			require.NoError(t, w.drainer.Uncordon(t.Context(), ref, owner))
			require.Equal(t, free, cordonOf(w.node()))
		})
	}
}

// What others write between reading and writing is looked at before anything is written.
func TestCordonMeetsOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(*world)
		times     int
		ours      bool
		after     cordon
		err       error
		text      string
	}{
		"who changes something else": {
			meanwhile: func(w *world) {
				w.edit(func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} })
			}, times: 1, ours: true, after: ours,
		},
		"who cordons":              {meanwhile: func(w *world) { w.edit(foreign.on) }, times: 1, after: foreign},
		"another Machine's update": {meanwhile: func(w *world) { w.edit(another.on) }, times: 1, after: another, err: ErrOtherOwner},
		"who registers the node again": {
			meanwhile: func(w *world) {
				require.NoError(w.t, w.client.Delete(w.t.Context(), w.node()))
				w.add(node("w1", corev1.ConditionTrue, func(n *corev1.Node) { n.UID = "later-uid" }))
			}, times: 1, after: free, err: lease.ErrNodeReplaced,
		},
		"who never stops": {
			meanwhile: func(w *world) {
				w.edit(func(n *corev1.Node) { n.Labels = map[string]string{"a": n.ResourceVersion} })
			}, times: writeAttempts, after: free, text: "others wrote it at the same time, 5 times",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.edit(free.on)
			left := tc.times
			w.intercept(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if left > 0 {
					left--
					tc.meanwhile(w)
				}
				return c.Patch(ctx, obj, patch, opts...)
			}})
			ok, err := w.drainer.Cordon(t.Context(), ref, owner)
			switch {
			case tc.text != "":
				require.ErrorContains(t, err, tc.text)
			default:
				require.ErrorIs(t, err, tc.err)
			}
			require.Equal(t, tc.ours, ok)
			require.Equal(t, tc.after, cordonOf(w.node()))
			require.Zero(t, left)
		})
	}
}

func TestNodeCantBeRead(t *testing.T) {
	w := newWorld(t)
	w.intercept(failing[*corev1.Node]())
	_, err := w.drainer.Cordon(t.Context(), ref, owner)
	require.ErrorIs(t, err, errAway)
	require.ErrorIs(t, w.drainer.Uncordon(t.Context(), ref, owner), errAway)
	_, err = w.drainer.Pass(t.Context(), w.req)
	require.ErrorIs(t, err, errAway)
}
