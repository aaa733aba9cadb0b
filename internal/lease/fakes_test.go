//go:build !e2e

package lease

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capi-refit/refit/internal/workload/workloadtest"
)

// raceRounds is how often two want the node at once.
const raceRounds = 1000

// newWorkload returns a cluster that exists in memory only, and whose time stands still.
func newWorkload(t testingT) *workload {
	maintenance := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: maintenanceKey.Namespace}}
	base := workloadtest.NewClient(clocktesting.NewFakePassiveClock(start), testNode(), maintenance)
	served := true // whether NodeMaintenances are
	return &workload{
		WithWatch: workloadtest.Before(base, func(_ string, obj runtime.Object) error {
			if group := NodeMaintenanceGVK.GroupKind(); !served && obj.GetObjectKind().GroupVersionKind().Group == group.Group {
				return &meta.NoKindMatchError{GroupKind: group}
			}
			return nil
		}),
		t: t, time: func() time.Time { return start }, withoutMaintenances: func() { served = false },
	}
}
