package kubernetessource

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/internal/resync"
	"github.com/capi-refit/refit/internal/shard"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=kubernetessources/status,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// reasonInvalid is the reason of the Ready condition of a source that can't be read.
const reasonInvalid = "InvalidSource"

// Status shows in each source's status whether it can be read. It runs in the leader only, and writes what has changed.
type Status struct {
	Client   client.Client
	Recorder events.EventRecorder
}

// SetupWithManager has the manager run the Status.
func (s *Status) SetupWithManager(mgr ctrl.Manager) error {
	later := &policykind.Later{Client: mgr.GetClient(), List: &refitv1.KubernetesSourceList{}}
	named := ctrl.NewControllerManagedBy(mgr).Named("kubernetessource-status").For(&refitv1.KubernetesSource{})
	return shard.Complete(mgr, later.WatchSelected(named), s, &refitv1.KubernetesSourceList{})
}

// Reconcile writes the status of a source, and comes back to count its Machines again.
func (s *Status) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var source refitv1.KubernetesSource
	st := &source.Status
	shown := policykind.Shown{
		Client: s.Client, Recorder: s.Recorder, Kind: "KubernetesSource", Policy: &source, Conditions: &st.Conditions,
	}
	return shown.Show(ctx, req, func() (time.Duration, error) {
		read := Compile(&source)
		st.ObservedGeneration = source.Generation
		selected, err := read.Selector.Count(ctx, s.Client, read.Namespace)
		if err != nil {
			return 0, err
		}
		st.SelectedMachines = &selected
		versions := int32(len(source.Spec.Versions))
		st.Versions = &versions
		meta.SetStatusCondition(&st.Conditions, policykind.Ready(source.Generation, "source", read.Err, reasonInvalid,
			"can't be read, and no Machine that it selects is brought to another version"))
		return resync.In(), nil
	})
}
