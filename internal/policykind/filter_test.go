package policykind

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// TestWhatIsReadAgain: a status that changes says nothing new, and an object that was made again is another one.
func TestWhatIsReadAgain(t *testing.T) {
	of := func(uid types.UID, generation int64) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: uid, Generation: generation}}
	}
	for name, tc := range map[string]struct {
		before, now *corev1.ConfigMap
		again       bool
	}{
		"its spec has changed":                        {of("a", 1), of("a", 2), true},
		"its status has changed":                      {of("a", 1), of("a", 1), false},
		"it was deleted and made again":               {of("a", 1), of("b", 1), true},
		"it was deleted and made again, with changes": {of("a", 1), of("b", 2), true},
	} {
		require.Equal(t, tc.again, changed.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.now}), name)
	}
	require.True(t, changed.Create(event.CreateEvent{Object: of("a", 1)}))
	require.True(t, changed.Delete(event.DeleteEvent{Object: of("a", 1)}))
}

// TestWhoWritesAStatusIsNotWokenByIt: a status that is written has its writer look again after a while, and not at once.
func TestWhoWritesAStatusIsNotWokenByIt(t *testing.T) {
	of := func(change func(*corev1.ConfigMap)) *corev1.ConfigMap {
		c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "a", Generation: 1, ResourceVersion: "1"}}
		change(c)
		return c
	}
	for name, tc := range map[string]struct {
		change func(*corev1.ConfigMap)
		passes bool
	}{
		"its status":      {func(c *corev1.ConfigMap) { c.ResourceVersion = "2" }, false},
		"its spec":        {func(c *corev1.ConfigMap) { c.Generation = 2 }, true},
		"its annotations": {func(c *corev1.ConfigMap) { c.Annotations = map[string]string{"a": "b"} }, true},
		"its labels":      {func(c *corev1.ConfigMap) { c.Labels = map[string]string{"a": "b"} }, true},
		"another one":     {func(c *corev1.ConfigMap) { c.UID = "b" }, true},
	} {
		e := event.UpdateEvent{ObjectOld: of(func(*corev1.ConfigMap) {}), ObjectNew: of(tc.change)}
		require.Equal(t, tc.passes, Edited.Update(e), name)
	}
}
