package protection

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/lease"
)

var (
	markedMachine = map[string]string{
		skipRemediation: "refit", preDrainHook: "refit",
		AddedAnnotation: "machine-1:cluster.x-k8s.io/skip-remediation,pre-drain.delete.hook.machine.cluster.x-k8s.io/refit",
	}
	markedNode = map[string]string{
		scaleDown: "true", doNotDisrupt: "true", UpdatingAnnotation: "machine-1",
		AddedAnnotation: "machine-1:cluster-autoscaler.kubernetes.io/scale-down-disabled,karpenter.sh/do-not-disrupt,remediation.medik8s.io/exclude-from-remediation",
	}
	markedLabels = map[string]string{excludeLabel: "true"}
)

func TestProtectAndRelease(t *testing.T) {
	tests := map[string]struct {
		machine, labels, annotations map[string]string
		// protected* are what is there after Protect, released* after Release; the latter nil if as before Protect.
		protectedMachine, protectedLabels, protectedNode map[string]string
		releasedMachine, releasedLabels, releasedNode    map[string]string
	}{
		"nothing there": {
			protectedMachine: markedMachine, protectedLabels: markedLabels, protectedNode: markedNode,
		},
		"what has nothing to do with refit stays": {
			machine: map[string]string{"a": "b"}, labels: map[string]string{"c": "d"}, annotations: map[string]string{"e": "f"},
			protectedMachine: merged(markedMachine, map[string]string{"a": "b"}),
			protectedLabels:  merged(markedLabels, map[string]string{"c": "d"}),
			protectedNode:    merged(markedNode, map[string]string{"e": "f"}),
		},
		"others' markers stay, with their values": {
			machine: map[string]string{skipRemediation: ""}, labels: map[string]string{excludeLabel: "false"}, annotations: map[string]string{doNotDisrupt: "true"},
			protectedMachine: map[string]string{skipRemediation: "", preDrainHook: "refit", AddedAnnotation: "machine-1:" + preDrainHook},
			protectedLabels:  map[string]string{excludeLabel: "false"},
			protectedNode: map[string]string{
				doNotDisrupt: "true", scaleDown: "true", UpdatingAnnotation: "machine-1", AddedAnnotation: "machine-1:" + scaleDown,
			},
		},
		"nothing is noted where others have set all": {
			machine: map[string]string{skipRemediation: "", preDrainHook: ""}, labels: markedLabels,
			annotations:      map[string]string{doNotDisrupt: "true", scaleDown: "true"},
			protectedMachine: map[string]string{skipRemediation: "", preDrainHook: ""},
			protectedLabels:  markedLabels,
			protectedNode:    map[string]string{doNotDisrupt: "true", scaleDown: "true", UpdatingAnnotation: "machine-1"},
		},
		"markers that an earlier run has left are refit's": {
			machine: markedMachine, labels: markedLabels, annotations: markedNode,
			protectedMachine: markedMachine, protectedLabels: markedLabels, protectedNode: markedNode,
			releasedMachine: map[string]string{}, releasedLabels: map[string]string{}, releasedNode: map[string]string{},
		},
		"a marker that somebody has removed is set again": {
			machine:          map[string]string{preDrainHook: "refit", AddedAnnotation: markedMachine[AddedAnnotation]},
			protectedMachine: markedMachine, protectedLabels: markedLabels, protectedNode: markedNode,
			releasedMachine: map[string]string{},
		},
		"a value that somebody has changed since stays": {
			machine: merged(markedMachine, map[string]string{skipRemediation: "by bob"}), labels: map[string]string{excludeLabel: "bob"},
			annotations:      merged(markedNode, map[string]string{scaleDown: "false"}),
			protectedMachine: merged(markedMachine, map[string]string{skipRemediation: "by bob"}),
			protectedLabels:  map[string]string{excludeLabel: "bob"},
			protectedNode:    merged(markedNode, map[string]string{scaleDown: "false"}),
			releasedMachine:  map[string]string{skipRemediation: "by bob"}, releasedLabels: map[string]string{excludeLabel: "bob"},
			releasedNode: map[string]string{scaleDown: "false"},
		},
		"markers from before the Machine was moved to this management cluster": {
			machine: merged(markedMachine, map[string]string{AddedAnnotation: "old:" + skipRemediation + "," + preDrainHook}),
			labels:  markedLabels, annotations: merged(markedNode, map[string]string{UpdatingAnnotation: "old", AddedAnnotation: "old:" + scaleDown}),
			protectedMachine: markedMachine, protectedLabels: markedLabels,
			protectedNode:   merged(markedNode, map[string]string{AddedAnnotation: "machine-1:" + scaleDown}),
			releasedMachine: map[string]string{}, releasedLabels: markedLabels, releasedNode: map[string]string{doNotDisrupt: "true"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, testMachine(tt.machine), testNode(tt.labels, tt.annotations))
			p := w.protector()
			for range 2 {
				require.NoError(t, p.Protect(t.Context(), machine, node))
				equal(t, tt.protectedMachine, w.machine(t).Annotations)
				equal(t, tt.protectedLabels, w.node(t).Labels)
				equal(t, tt.protectedNode, w.node(t).Annotations)
			}
			written := w.writes
			require.NoError(t, p.Protect(t.Context(), machine, node))
			require.Equal(t, written, w.writes, "nothing is written when all is there")

			orBefore := func(after, before map[string]string) map[string]string {
				if after != nil {
					return after
				}
				return before
			}
			for range 2 {
				require.NoError(t, p.Release(t.Context(), machine, node))
				equal(t, orBefore(tt.releasedMachine, tt.machine), w.machine(t).Annotations)
				equal(t, orBefore(tt.releasedLabels, tt.labels), w.node(t).Labels)
				equal(t, orBefore(tt.releasedNode, tt.annotations), w.node(t).Annotations)
			}
			written = w.writes
			require.NoError(t, p.Release(t.Context(), machine, node))
			require.Equal(t, written, w.writes, "nothing is written when all is gone")
		})
	}
}

func equal(t *testing.T, want, got map[string]string) {
	t.Helper()
	require.Equal(t, merged(want), merged(got)) // an empty map is as good as none
}

var errAway = errors.New("the API server is away")

func TestCrashBetweenTheWrites(t *testing.T) {
	foreign := map[string]string{doNotDisrupt: "true"}
	tests := map[string]struct {
		// writes that succeed before the crash
		writes int
		begun  func(context.Context, *Protector) error
	}{
		"Protect has written nothing":      {0, protect},
		"Protect has marked the Machine":   {1, protect},
		"Release has written nothing":      {0, release},
		"Release has unmarked the Node":    {1, release},
		"Release has done all but tell so": {2, release},
	}
	for name, tt := range tests {
		for next, then := range map[string]func(context.Context, *Protector) error{"Protect": protect, "Release": release} {
			t.Run(name+", "+next+" follows", func(t *testing.T) {
				w := newWorld(t, testMachine(nil), testNode(nil, foreign))
				if name[0] == 'R' {
					require.NoError(t, protect(t.Context(), w.protector()))
				}
				left := tt.writes
				w.onPatch = func(client.Object) error {
					if left == 0 {
						return errAway
					}
					left--
					return nil
				}
				if err := tt.begun(t.Context(), w.protector()); tt.writes < 2 {
					require.ErrorIs(t, err, errAway)
				}
				w.onPatch = nil
				require.NoError(t, then(t.Context(), w.protector()))
				if next == "Protect" {
					equal(t, markedMachine, w.machine(t).Annotations)
					equal(t, markedLabels, w.node(t).Labels)
				}
				require.NoError(t, release(t.Context(), w.protector()))
				require.Empty(t, w.machine(t).Annotations)
				require.Empty(t, w.node(t).Labels)
				require.Equal(t, foreign, w.node(t).Annotations)
			})
		}
	}
}

func protect(ctx context.Context, p *Protector) error { return p.Protect(ctx, machine, node) }
func release(ctx context.Context, p *Protector) error { return p.Release(ctx, machine, node) }

func TestWhatIsNotThere(t *testing.T) {
	otherMachine := testMachine(markedMachine)
	otherMachine.UID = "machine-2"
	otherNode := testNode(markedLabels, markedNode)
	otherNode.UID = "node-2"
	tests := map[string]struct {
		machine *clusterv1.Machine
		node    *corev1.Node
		protect error
	}{
		"the Machine is gone":          {nil, testNode(nil, nil), ErrMachineGone},
		"the Machine was made again":   {otherMachine, testNode(nil, nil), lease.ErrMachineReplaced},
		"the Node is gone":             {testMachine(nil), nil, lease.ErrNodeGone},
		"the Node registered again":    {testMachine(nil), otherNode, lease.ErrNodeReplaced},
		"neither is what it was":       {otherMachine, otherNode, lease.ErrMachineReplaced},
		"neither is there any more":    {nil, nil, ErrMachineGone},
		"the Machine is being deleted": {deletingMachine(), testNode(nil, nil), ErrDeleting},
		"the Node is being deleted":    {testMachine(nil), deletingNode(), ErrDeleting},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.machine, tt.node)
			p := w.protector()
			require.ErrorIs(t, p.Protect(t.Context(), machine, node), tt.protect)
			require.NoError(t, p.Release(t.Context(), machine, node))
			require.NoError(t, p.ReleaseMachine(t.Context(), machine))
			if tt.machine != nil {
				equal(t, tt.machine.Annotations, w.machine(t).Annotations)
			}
			if tt.node != nil {
				equal(t, tt.node.Annotations, w.node(t).Annotations)
				equal(t, tt.node.Labels, w.node(t).Labels)
			}
		})
	}
}

func deletingMachine() *clusterv1.Machine {
	m := testMachine(nil)
	m.DeletionTimestamp, m.Finalizers = ptr.To(metav1.Unix(1_790_000_000, 0)), []string{clusterv1.MachineFinalizer}
	return m
}

func deletingNode() *corev1.Node {
	n := testNode(nil, nil)
	n.DeletionTimestamp, n.Finalizers = ptr.To(metav1.Unix(1_790_000_000, 0)), []string{"example.org/x"}
	return n
}

func TestAnotherMachinesNodeMarkersStay(t *testing.T) {
	annotations := merged(markedNode, map[string]string{UpdatingAnnotation: "machine-2", AddedAnnotation: "machine-2:" + scaleDown})
	w := newWorld(t, testMachine(nil), testNode(markedLabels, annotations))
	require.NoError(t, release(t.Context(), w.protector()))
	require.Equal(t, annotations, w.node(t).Annotations)
	require.Equal(t, markedLabels, w.node(t).Labels)
	require.Zero(t, w.writes)
}

func TestTheNodeMarkersOfAMachineThatWasMovedAreItsOwn(t *testing.T) {
	annotations := merged(markedNode, map[string]string{UpdatingAnnotation: "machine-0", AddedAnnotation: "machine-0:" + scaleDown})
	w := newWorld(t, testMachine(nil), testNode(nil, annotations))
	p := w.protector()
	p.Former = []types.UID{"machine-0"}
	require.NoError(t, release(t.Context(), p))
	require.Equal(t, map[string]string{doNotDisrupt: "true"}, w.node(t).Annotations, "what refit has not noted stays")
}

func TestReleaseMachineNeedsNoWorkloadCluster(t *testing.T) {
	m := deletingMachine()
	m.Annotations = merged(markedMachine, map[string]string{AddedAnnotation: "old:" + preDrainHook, "a": "b"})
	w := newWorld(t, m, nil)
	p := &Protector{Management: w.management}
	require.NoError(t, p.ReleaseMachine(t.Context(), machine))
	require.Equal(t, map[string]string{skipRemediation: "refit", "a": "b"}, w.machine(t).Annotations, "what is noted goes, whatever the uid was")
}

func TestConflicts(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, node.Name, errors.New("modified"))
	t.Run("a marker that is set between reading and writing is not refit's", func(t *testing.T) {
		w := newWorld(t, testMachine(nil), testNode(nil, nil))
		w.onPatch = func(obj client.Object) error {
			if obj.GetName() != node.Name {
				return nil
			}
			w.onPatch = nil
			n := w.node(t)
			n.Annotations = map[string]string{doNotDisrupt: "true"}
			return w.workload.Update(t.Context(), n)
		}
		require.NoError(t, protect(t.Context(), w.protector()))
		require.Equal(t, 3, w.writes)
		require.NoError(t, release(t.Context(), w.protector()))
		require.Equal(t, map[string]string{doNotDisrupt: "true"}, w.node(t).Annotations)
	})
	t.Run("a Node that is made again between reading and writing is not marked", func(t *testing.T) {
		w := newWorld(t, testMachine(nil), testNode(nil, nil))
		w.onPatch = func(obj client.Object) error {
			if obj.GetName() != node.Name {
				return nil
			}
			w.onPatch = nil
			require.NoError(t, w.workload.Delete(t.Context(), w.node(t)))
			n := testNode(nil, nil)
			n.UID = "node-2"
			require.NoError(t, w.workload.Create(t.Context(), n))
			return conflict
		}
		require.ErrorIs(t, protect(t.Context(), w.protector()), lease.ErrNodeReplaced)
		require.Empty(t, w.node(t).Annotations)
	})
	t.Run("a Machine that goes between reading and writing is released", func(t *testing.T) {
		w := newWorld(t, testMachine(markedMachine), nil)
		w.onPatch = func(client.Object) error {
			w.onPatch = nil
			return w.management.Delete(t.Context(), w.machine(t))
		}
		require.NoError(t, release(t.Context(), w.protector()))
	})
	t.Run("conflicts without end are an error", func(t *testing.T) {
		w := newWorld(t, testMachine(nil), testNode(nil, nil))
		w.onPatch = func(client.Object) error { return conflict }
		require.True(t, apierrors.IsConflict(protect(t.Context(), w.protector())))
		require.Equal(t, writeAttempts, w.writes)
	})
}

func TestErrors(t *testing.T) {
	unreadable := map[string]string{AddedAnnotation: "scale-down-disabled"}
	t.Run("a record that can't be read", func(t *testing.T) {
		w := newWorld(t, testMachine(unreadable), testNode(nil, nil))
		require.ErrorContains(t, protect(t.Context(), w.protector()), "protect Machine fleet/m1: the record of refit's markers is not as refit writes it")
		require.ErrorContains(t, release(t.Context(), w.protector()), "release Machine fleet/m1: ")
		w = newWorld(t, testMachine(nil), testNode(nil, unreadable))
		require.ErrorIs(t, protect(t.Context(), w.protector()), ErrRecord)
		require.NoError(t, release(t.Context(), w.protector()), "the node's kubelet can write it")
		require.Empty(t, w.node(t).Annotations)
	})
	t.Run("what can't be read is not taken for absent", func(t *testing.T) {
		w := newWorld(t, testMachine(nil), testNode(nil, nil))
		p := w.protector()
		p.Live = interceptor.NewClient(w.management, interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return errAway
			},
		})
		require.ErrorIs(t, p.Protect(t.Context(), machine, node), errAway)
		require.ErrorIs(t, p.ReleaseMachine(t.Context(), machine), errAway)
	})
	t.Run("without uids nothing is touched", func(t *testing.T) {
		w := newWorld(t, testMachine(nil), testNode(nil, nil))
		require.ErrorContains(t, w.protector().Protect(t.Context(), Machine{ObjectKey: machine.ObjectKey}, node), "without its uid")
		require.ErrorContains(t, w.protector().Release(t.Context(), machine, Node{Name: node.Name, UID: types.UID("")}), "without its uid")
		require.Zero(t, w.writes)
	})
}
