package machineupdate

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/inplace"
)

const (
	// refusedFor is for how long a digest that was found in the API server is the answer to requests with another one. Whoever asks for
	// what is not there causes no more reads than that.
	refusedFor = 2 * time.Second
	// maxJudged bounds the Machines of which a digest is kept, about 200 bytes each.
	maxJudged = 10000
)

// liveSpecs compares what a request asks for with what the API server has.
type liveSpecs struct {
	clock clock.PassiveClock
	// judged is what was found last, as *judged by the key of the Machine.
	judged *lru.Cache
}

// judged is the digest that a Machine's specs had when a request was last refused.
type judged struct {
	// turn is had by who reads the specs, so that many wrong requests at once have them read once. Who waits for it, unlike for a mutex,
	// can give up.
	turn   chan struct{}
	digest string
	at     time.Time
}

// reading is what specs are read from: the API server, or what it has just said of all of a Cluster.
type reading struct {
	client.Reader
	at time.Time // when that began; zero: it is asked now
}

// machine returns the Machine as it is now if Cluster API has it updated to the specs of a digest. Otherwise it returns the answer to
// whoever asked.
func (l *liveSpecs) machine(ctx context.Context, from reading, key types.NamespacedName, digest string) (*clusterv1.Machine, *inplace.Progress, error) {
	value, ok := l.judged.Get(key)
	if !ok {
		value = &judged{turn: make(chan struct{}, 1)}
		l.judged.Add(key, value)
	}
	j := value.(*judged)
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("wait for what is read of Machine %s: %w", key, ctx.Err())
	}
	if j.refuses(digest, l.clock) {
		return nil, otherSpecs(), nil
	}
	return l.read(ctx, from, j, key, digest)
}

// refuses reports whether a digest is not that which the specs had a moment ago. It waits for nobody: while somebody reads them that is not known.
func (l *liveSpecs) refuses(key types.NamespacedName, digest string) bool {
	value, ok := l.judged.Get(key)
	if !ok {
		return false
	}
	j := value.(*judged)
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
		return j.refuses(digest, l.clock)
	default:
		return false
	}
}

// refuses reports so when the turn is had.
func (j *judged) refuses(digest string, now clock.PassiveClock) bool {
	age := now.Since(j.at)
	return j.digest != "" && j.digest != digest && age >= 0 && age < refusedFor
}

// read does so when the turn is had.
func (l *liveSpecs) read(ctx context.Context, from reading, j *judged, key types.NamespacedName, digest string) (*clusterv1.Machine, *inplace.Progress, error) {
	machine, spec, err := readMachine(ctx, from, key)
	switch {
	case apierrors.IsNotFound(err):
		return nil, notAsked(), nil
	case err != nil:
		return nil, nil, fmt.Errorf("read Machine %s: %w", key, err)
	case !asked(machine):
		return nil, notAsked(), nil
	}
	s, err := readSpecs(ctx, from, machine, spec)
	if err != nil {
		return nil, nil, err
	}
	if s.digest != digest {
		if j.digest, j.at = s.digest, from.at; j.at.IsZero() {
			j.at = l.clock.Now()
		}
		return nil, otherSpecs(), nil
	}
	j.digest = ""
	return machine, nil, nil
}

// notAsked answers who asks for the update of a Machine that Cluster API does not have updated, as far as the Machine says. Cluster
// API itself asks a moment before this server's cache knows.
func notAsked() *inplace.Progress {
	return &inplace.Progress{
		Message: "the Machine is not being updated in place, as its annotations say, so nothing is done; refit looks again", RetryAfter: retryWorking,
	}
}

// otherSpecs answers who asks for specs that are not those of the Machine and its objects.
func otherSpecs() *inplace.Progress {
	return &inplace.Progress{
		Message: "the specs in the request are not those that the Machine and its objects have now, so nothing is done; refit waits to be asked for these", RetryAfter: retryWorking,
	}
}

// crdMemory is for how long the metadata of a CustomResourceDefinition is remembered.
const crdMemory = time.Minute

// RememberCRDs returns a reader that remembers the metadata of CustomResourceDefinitions for a minute. Cluster API's libraries read it
// before each object that a Machine refers to, to learn the version that the object is read in.
func RememberCRDs(live client.Reader, now clock.PassiveClock) client.Reader {
	return &crdReader{Reader: live, clock: now, known: lru.New(maxCRDs)}
}

// maxCRDs bounds the CustomResourceDefinitions that are remembered. A management cluster has a few of the kinds that Machines refer to.
const maxCRDs = 100

type crdReader struct {
	client.Reader
	clock clock.PassiveClock
	known *lru.Cache
}

type knownCRD struct {
	metadata *metav1.PartialObjectMetadata
	at       time.Time
}

// Get implements client.Reader.
func (r *crdReader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	crd, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok || crd.Kind != "CustomResourceDefinition" || len(opts) > 0 {
		return r.Reader.Get(ctx, key, obj, opts...)
	}
	if value, ok := r.known.Get(key.Name); ok {
		known := value.(knownCRD)
		if age := r.clock.Since(known.at); age >= 0 && age < crdMemory {
			known.metadata.DeepCopyInto(crd)
			return nil
		}
	}
	if err := r.Reader.Get(ctx, key, crd); err != nil {
		return err
	}
	r.known.Add(key.Name, knownCRD{crd.DeepCopy(), r.clock.Now()})
	return nil
}
