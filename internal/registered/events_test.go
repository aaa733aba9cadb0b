package registered

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/managementtest"
)

// TestAFaultIsOneEvent however often the MachineDeployment is written meanwhile, such as its status.
func TestAFaultIsOneEvent(t *testing.T) {
	md := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "md", UID: "uid-md"}}
	other := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "other", UID: "uid-other"}}
	c := managementtest.New(md, other)
	api := fake.NewClientset()
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: api.EventsV1()})
	require.NoError(t, broadcaster.StartRecordingToSinkWithContext(t.Context()))
	tells := &Events{Client: c, Recorder: broadcaster.NewRecorder(c.Scheme(), "refit")}
	told := func() int {
		all, err := api.EventsV1().Events("fleet").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return len(all.Items)
	}
	for i := range 5 {
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(md), md))
		md.Annotations = map[string]string{"n": fmt.Sprint(i)}
		require.NoError(t, c.Update(t.Context(), md))
		tells.Tell(t.Context(), "fleet", "ms", "md", &Fault{Updater: "disks", Err: errors.New("slow")})
		require.Eventually(t, func() bool { return told() > 0 }, time.Minute, 10*time.Millisecond)
	}
	// Events are recorded in their order: when there is this one, there is none more of the others.
	tells.Tell(t.Context(), "fleet", "ms", "other", &Fault{Updater: "disks", Err: errors.New("slow")})
	require.Eventually(t, func() bool { return told() >= 2 }, time.Minute, 10*time.Millisecond)
	time.Sleep(200 * time.Millisecond)
	require.Equal(t, 2, told())
	tells.Tell(t.Context(), "fleet", "ms", "md", &Fault{Updater: "net", Err: errors.New("slow")})
	require.Eventually(t, func() bool { return told() == 3 }, time.Minute, 10*time.Millisecond, "that of another extension is told, too")
}
