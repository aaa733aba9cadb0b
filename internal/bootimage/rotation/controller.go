package rotation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/shard"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=bootimagepolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// refresh is how old what is known of targets and of the ConfigMap may be. Nothing watches ConfigMaps and control planes, of
	// which a management cluster may have many, or none.
	refresh = time.Minute
	// settling is how long all replicas have to read a policy, or what else decides, before it is acted upon: one that does not know
	// it yet would answer Cluster API's hooks by what was, and machines would be replaced. Cluster API's managers have as long to
	// learn that they are to ask refit.
	settling = 30 * time.Second
	// soon is when what was in somebody else's way is looked at again.
	soon = 2 * time.Second
	// step is when a target is looked at again of which Cluster API is in the middle of a step of a rollout: most take that long. Of a
	// rollout that goes on, it is looked at half as often each time, down to once in refresh.
	step = 5 * time.Second
)

// Controller keeps machine templates at golden images. It runs in the leader only.
type Controller struct {
	Client client.Client
	// Live reads from the API server: what is judged is what is there, and not what a cache has of it.
	Live client.Reader
	// Updaters are those that answer Cluster API's hooks.
	Updaters inplace.Updaters
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// rollouts says when policies are looked at again whose targets wait for the end of a rollout.
	rollouts workqueue.TypedRateLimiter[ctrl.Request]
	// remembered has, by the name of a policy, what else decides about its targets, and since when it is so.
	remembered sync.Map
}

// SetupWithManager has the manager run the Controller.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	c.rollouts = newRollouts()
	shard.Forget(mgr, &c.remembered)
	return shard.Complete(mgr, ctrl.NewControllerManagedBy(mgr).Named("bootimagepolicy-rotation").
		For(&refitv1.BootImagePolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(&clusterv1.MachineDeployment{}, handler.EnqueueRequestsFromMapFunc(c.ofNamespace),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})), c, &refitv1.BootImagePolicyList{})
}

func newRollouts() workqueue.TypedRateLimiter[ctrl.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](step, refresh)
}

// ofNamespace returns the policies with a rotation that are in the namespace of an object.
func (c *Controller) ofNamespace(ctx context.Context, obj client.Object) []ctrl.Request {
	var list refitv1.BootImagePolicyList
	if err := c.Client.List(ctx, &list, client.InNamespace(obj.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Could not list BootImagePolicies")
		return nil
	}
	var requests []ctrl.Request
	for i := range list.Items {
		if list.Items[i].Spec.Rotation != nil {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// Reconcile looks at all that a policy selects. A policy that is gone, or that has no rotation any more, leaves all as it is.
func (c *Controller) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var policy refitv1.BootImagePolicy
	if err := c.Client.Get(ctx, req.NamespacedName, &policy); err != nil {
		c.forget(req)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !policy.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	base := policy.DeepCopy()
	if policy.Spec.Rotation == nil {
		c.forget(req)
		clearStatus(&policy)
		_, err := c.write(ctx, &policy, base)
		return ctrl.Result{}, err
	}
	p, err := c.prepare(ctx, &policy)
	if unusable := (*refusedError)(nil); errors.As(err, &unusable) {
		invalid(&policy, unusable.message)
		if written, err := c.write(ctx, &policy, base); err != nil || !written {
			return ctrl.Result{RequeueAfter: soon}, err
		}
		c.tell(&policy, base)
		return ctrl.Result{RequeueAfter: refresh}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return c.run(ctx, p, base)
}

// forget drops what is remembered of a policy.
func (c *Controller) forget(req ctrl.Request) {
	c.rollouts.Forget(req)
	c.remembered.Delete(req.NamespacedName)
}

// run looks at the targets, says how they stand, and then clears away.
func (c *Controller) run(ctx context.Context, p *pass, base *refitv1.BootImagePolicy) (ctrl.Result, error) {
	found, lookErr := p.lookAtAll(ctx)
	if found == nil && lookErr != nil {
		return ctrl.Result{}, lookErr
	}
	p.show(found)
	written, err := c.write(ctx, p.policy, base)
	if written {
		c.tell(p.policy, base)
	}
	err = errors.Join(lookErr, err)
	if err == nil && !p.again {
		err = p.collect(ctx)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: p.next(written)}, nil
}

// next is when a policy is looked at again.
func (p *pass) next(written bool) time.Duration {
	req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(p.policy)}
	if !p.waits {
		p.rollouts.Forget(req)
	}
	switch {
	case p.again || !written:
		return soon
	case p.waits:
		return p.rollouts.When(req)
	case p.settles:
		return settling
	}
	return refresh
}

// lookAtAll looks at every target. An error is of single ones; without any result, they could not be read.
func (p *pass) lookAtAll(ctx context.Context) ([]refitv1.BootImageTarget, error) {
	targets, err := p.targets(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.takeIn(ctx, targets); err != nil {
		return nil, err
	}
	var errs []error
	found := make([]refitv1.BootImageTarget, len(targets))
	for i, t := range targets {
		if found[i], err = p.look(ctx, t); err != nil {
			errs = append(errs, err)
		}
	}
	return found, errors.Join(errs...)
}

// prepare reads what all targets have in common. A refusedError says what of it can't be used.
func (c *Controller) prepare(ctx context.Context, policy *refitv1.BootImagePolicy) (*pass, error) {
	p := &pass{
		Controller: c, policy: policy, clusters: map[string]*clusterv1.Cluster{}, templates: map[clusterv1.ContractVersionedObjectReference]*unstructured.Unstructured{},
	}
	if policy.Status.Rotation != nil {
		p.before = *policy.Status.Rotation.DeepCopy()
	}
	var err error
	if p.selector, err = newSelector(&policy.Spec); err != nil {
		return nil, refused("the policy can't be read: %v", err)
	}
	var images corev1.ConfigMap
	key := client.ObjectKey{Namespace: policy.Namespace, Name: policy.Spec.Rotation.ConfigMap}
	if err := c.Live.Get(ctx, key, &images); apierrors.IsNotFound(err) {
		return nil, refused("there is no ConfigMap %s, which should say which image is golden", key)
	} else if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	p.images = documents{name: key.Name, data: images.Data}
	p.inputs = inputsOf(policy.UID, policy.Generation, images.Data)
	since := metav1.NewTime(c.Clock.Now())
	if p.before.Inputs == p.inputs && p.before.Since != nil {
		since = *p.before.Since
		p.settled = c.Clock.Since(since.Time) >= settling
	}
	policy.Status.Rotation = &refitv1.BootImageRotationStatus{Inputs: p.inputs, Since: &since}
	return p, p.readOthers(ctx)
}

// readOthers reads the policies that come before this one where both select a target. One that can't be read keeps nothing at
// an image.
func (p *pass) readOthers(ctx context.Context) error {
	var list refitv1.BootImagePolicyList
	if err := p.Client.List(ctx, &list, client.InNamespace(p.policy.Namespace)); err != nil {
		return fmt.Errorf("list BootImagePolicies: %w", err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		if o.Spec.Rotation == nil || o.Name >= p.policy.Name || !o.DeletionTimestamp.IsZero() {
			continue
		}
		if s, err := newSelector(&o.Spec); err == nil {
			p.others = append(p.others, other{name: o.Name, selector: s})
		}
	}
	return nil
}
