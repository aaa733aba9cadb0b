package pending

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/rollout"
)

const (
	// knownFor is for how long what was read of an owner is known, as long as it does not change: templates may.
	knownFor = 10 * time.Minute
	// unknownFor is how long until what could not be read is tried again.
	unknownFor = time.Minute
	// keptFor is for how long what nobody has asked about is kept.
	keptFor = time.Hour
	// readAtOnce is how many owners, and how many of their differences, are read from the API server for one view. A change of a whole fleet is
	// made known bit by bit.
	readAtOnce = 20
)

// Differences returns what differs between a Machine and what its owner wants.
type Differences interface {
	Difference(ctx context.Context, machine client.ObjectKey) (fieldset.Change, error)
}

// Updaters judge changes.
type Updaters interface {
	inplace.Updaters
	// Basis returns what the updaters of a machine are made from.
	Basis(ctx context.Context, s inplace.Subject) (string, error)
}

// Accesses know which nodes refit can be told to reach.
type Accesses interface {
	// Without returns why refit has no way to the node of a Machine, or to one of those of a MachineSet; empty if it has. An error says that nothing is
	// decided for now.
	Without(ctx context.Context, namespace, name string, set bool) (why string, err error)
}

// Owners knows what owners want of their Machines: whether that can be made in place, and how they have it made. It asks the API server when an
// owner has changed, and remembers.
type Owners struct {
	// Client reads from a cache, and Live from the API server.
	Client, Live client.Reader
	Differences  Differences
	Updaters     Updaters
	// Registered are extensions that may claim what the updaters leave; nil if there are none. Asker asks them; nil: nobody does but the hooks.
	Registered Registered
	Asker      Asker
	// Accesses are asked about what can be made in place; nil: they are not.
	Accesses Accesses
	Clock    clock.PassiveClock

	deployments map[types.NamespacedName]deployment
	verdicts    map[types.NamespacedName]verdict // of refit's own updaters, by MachineSet, or by Machine where there is none
	told        map[types.NamespacedName]verdict // of all, for this view
	reads       int                              // what may be read for this view
	rereads     int                              // what of that may be read again only because it is old
	questions   questions
}

// begin begins another view, and forgets what nobody asks about any more.
func (o *Owners) begin() {
	if o.deployments == nil {
		o.deployments, o.verdicts = map[types.NamespacedName]deployment{}, map[types.NamespacedName]verdict{}
	}
	o.reads, o.rereads, o.told = readAtOnce, readAtOnce/2, map[types.NamespacedName]verdict{}
	now := o.Clock.Now()
	for key, d := range o.deployments {
		if now.Sub(d.at) > keptFor {
			delete(o.deployments, key)
		}
	}
	for key, v := range o.verdicts {
		if now.Sub(v.at) > keptFor {
			delete(o.verdicts, key)
		}
	}
}

// may reports whether something may be read for this view. What is known, and only old, leaves room for what is not known yet.
func (o *Owners) may(known bool) bool {
	if known {
		if o.rereads == 0 {
			return false
		}
		o.rereads--
	}
	if o.reads == 0 {
		return false
	}
	o.reads--
	return true
}

// meta returns the metadata of an owner out of a cache.
func (o *Owners) meta(ctx context.Context, namespace string, of owner) (*metav1.PartialObjectMetadata, error) {
	meta := &metav1.PartialObjectMetadata{}
	meta.APIVersion, meta.Kind = of.apiVersion, of.kind
	if err := o.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: of.name}, meta); err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", of.kind, namespace, of.name, err)
	}
	meta.APIVersion, meta.Kind = of.apiVersion, of.kind // a typed client may have taken them away
	return meta, nil
}

// deployment is how a MachineDeployment has changes made.
type deployment struct {
	at         time.Time
	generation int64
	err        error

	paused, onDelete bool
	// inPlace and replaced are how many of its Machines are updated, and replaced, at once.
	inPlace, replaced int
}

// deployment returns how a MachineDeployment has changes made. One that can't be read for now has them made one by one.
func (o *Owners) deployment(ctx context.Context, meta *metav1.PartialObjectMetadata) deployment {
	key, now := client.ObjectKeyFromObject(meta), o.Clock.Now()
	known, ok := o.deployments[key]
	same, age := ok && known.generation == meta.Generation, now.Sub(known.at)
	if same && age < knownFor && (known.err == nil || age < unknownFor) || !o.may(same) {
		known.inPlace, known.replaced = max(known.inPlace, 1), max(known.replaced, 1)
		return known
	}
	d := deployment{at: now, generation: meta.Generation, inPlace: 1, replaced: 1}
	var md clusterv1.MachineDeployment
	if d.err = o.Live.Get(ctx, key, &md); d.err == nil {
		d.read(&md)
	}
	o.deployments[key] = d
	return d
}

// of reports whether it is what was read of a MachineDeployment as it is.
func (d *deployment) of(meta *metav1.PartialObjectMetadata) bool {
	return !d.at.IsZero() && d.err == nil && d.generation == meta.Generation
}

func (d *deployment) read(md *clusterv1.MachineDeployment) {
	d.paused = ptr.Deref(md.Spec.Paused, false)
	d.onDelete = md.Spec.Rollout.Strategy.Type == clusterv1.OnDeleteMachineDeploymentStrategyType
	rolling := md.Spec.Rollout.Strategy.RollingUpdate
	limits := rollout.LimitsOf(rolling.MaxSurge, rolling.MaxUnavailable, int(ptr.Deref(md.Spec.Replicas, 1)))
	d.inPlace, d.replaced = limits.InPlace(), limits.Replaced()
}

// isPaused reports whether an owner is paused by an annotation.
func isPaused(meta *metav1.PartialObjectMetadata) bool { return annotations.HasPaused(meta) }
