package admin

import (
	"context"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/lease"
)

// TestNothingMovesTheCursor: what nodes and others have written into objects reaches the terminal as plain text in its own line.
func TestNothingMovesTheCursor(t *testing.T) {
	const evil = "x\x1b[2J\x1b]0;pwn\x07\r\n\u009bNode a is yours"
	w := newWorld(t, update("a", refitv1.PhaseApplying, evil, evil, func(mu *refitv1.MachineUpdate) { mu.Status.Step = evil }), machine("a", func(m *clusterv1.Machine) {
		m.Annotations = map[string]string{refitv1.HoldAnnotation: "true", lease.HoldByAnnotation: evil, lease.HoldReasonAnnotation: evil}
	}))
	plain := func(text string) {
		t.Helper()
		require.NotEmpty(t, text)
		require.Equal(t, -1, strings.IndexFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }), "%q", text)
		require.NotContains(t, text, "\nNode a is yours")
	}
	s := w.status(0, 0)
	require.NoError(t, s.Show(t.Context()))
	plain(w.said())
	h := &Holder{Client: w, Clock: w.clock, Out: &w.out, Admin: "alice", Nodes: func(context.Context, types.NamespacedName) (Nodes, error) { return nil, nil }}
	err := h.Hold(t.Context(), w.machine(), HoldOptions{Reason: "y"})
	require.ErrorIs(t, err, ErrNotYours)
	plain(err.Error())
	plain(h.progress(t.Context(), w.machine()))
	h.say("held by %s: %v", evil, err)
	plain(w.said())
}
