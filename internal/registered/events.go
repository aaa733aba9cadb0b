package registered

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind"
)

// ReasonFault is the reason of the Event that tells of an updater for whose fault nothing is decided about a change.
const ReasonFault = "UpdaterFault"

// Events tells of faults of updaters where people look who wait for a change.
type Events struct {
	// Client reads Machines, and the metadata of MachineDeployments, from a cache.
	Client   client.Reader
	Recorder events.EventRecorder
}

// Tell records a Warning at the object whose change waits, if an error is a Fault: at the MachineDeployment if one is named, else at the Machine. What is not
// there has no event.
func (e *Events) Tell(ctx context.Context, namespace, machine, deployment string, err error) {
	var fault *Fault
	if !errors.As(err, &fault) {
		return
	}
	var of client.Object = &clusterv1.Machine{}
	key := client.ObjectKey{Namespace: namespace, Name: machine}
	if deployment != "" {
		meta := &metav1.PartialObjectMetadata{}
		meta.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineDeployment"))
		of, key.Name = meta, deployment
	}
	if err := e.Client.Get(ctx, key, of); err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("Could not tell of a fault of a registered updater", "object", key, "reason", err.Error())
		return
	}
	// Faults of one are one Event, with the words of the first; those of another one are another Event.
	whose := &refitv1.UpdaterRegistration{ObjectMeta: metav1.ObjectMeta{Name: fault.Updater}}
	e.Recorder.Eventf(policykind.Repeated(of), whose, corev1.EventTypeWarning, ReasonFault, "Decide", "%s", policykind.Note(err.Error()))
}
