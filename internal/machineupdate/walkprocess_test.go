package machineupdate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typedpolicyv1 "k8s.io/client-go/kubernetes/typed/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capi-refit/refit/internal/workload"
)

// errDead is what a process gets for its calls after its death. None of them has an effect, so that nothing that it still runs
// can be told from nothing at all.
var errDead = errors.New("the process is dead")

// place is what a call goes to.
type place string

const (
	management      place = "management"
	workloadCluster place = "workload"
	machineItself   place = "node"
)

// call is one call of a process to what is outside of it.
type call struct {
	place place
	what  string
	// writes reports that it may have an effect.
	writes bool
	// refused is the error of one that was not made, lost that of one of which only the answer was.
	refused, lost error
}

func (c call) String() string { return string(c.place) + " " + c.what }

// process is a refit server. All that it does outside of itself is a call.
type process struct {
	*Reconciler
	world *walkWorld
	dead  atomic.Bool
}

// through makes a call, or lets happen to it what is due. do is told whether its answer is lost, so that the caller must not see
// anything of it.
func (p *process) through(c call, do func(lost bool) error) error {
	if p.dead.Load() {
		return errDead
	}
	p.world.clock.Step(p.world.tick)
	switch p.world.due(p, c) {
	case killedBefore:
		p.dead.Store(true)
		return errDead
	case killedAfter:
		_ = do(true) // nobody hears how it went
		p.dead.Store(true)
		return errDead
	case refused:
		return c.refused
	case answerLost:
		if err := do(true); err != nil {
			return err
		}
		return c.lost
	case leaseStolen:
		p.world.stealLease()
	case rivalled:
		p.world.rival()
	case nodeReplaced:
		p.world.replaceNode()
	case withdrawnFrom:
		p.world.withdraw()
	case movedBefore:
		p.dead.Store(true)
		p.world.move()
		return errDead
	case pausedFrom:
		p.world.pause(true)
	case apiGone:
		p.world.apiAway = p.world.clock.Now().Add(3 * time.Minute)
	case diskFull:
		p.world.node.fill(3)
	case clockForward:
		p.world.clock.SetTime(p.world.clock.Now().Add(time.Hour))
	case clockBack:
		p.world.clock.SetTime(p.world.clock.Now().Add(-time.Hour))
	case nothing:
	}
	if c.place == workloadCluster && p.world.clock.Now().Before(p.world.apiAway) {
		return c.refused
	}
	return do(false)
}

// api is the client of an API server that a process calls.
func (p *process) api(at place, base client.WithWatch) client.WithWatch {
	on := func(verb string, obj any, writes bool) call {
		kind := strings.TrimPrefix(fmt.Sprintf("%T", obj), "*")
		kind = kind[strings.LastIndex(kind, ".")+1:]
		return call{
			place: at, what: verb + " " + kind, writes: writes,
			refused: apierrors.NewServiceUnavailable("connection refused"), lost: fmt.Errorf("%s %s: %w", verb, kind, context.DeadlineExceeded),
		}
	}
	write := func(verb string, obj client.Object, do func(client.Object) error) error {
		return p.through(on(verb, obj, true), func(lost bool) error {
			if lost {
				obj = obj.DeepCopyObject().(client.Object)
			}
			return do(obj)
		})
	}
	return interceptor.NewClient(base, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return p.through(on("get", obj, false), func(bool) error { return c.Get(ctx, key, obj, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return p.through(on("list", list, false), func(bool) error { return c.List(ctx, list, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return write("create", obj, func(obj client.Object) error { return c.Create(ctx, obj, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return write("update", obj, func(obj client.Object) error { return c.Update(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return write("patch", obj, func(obj client.Object) error { return c.Patch(ctx, obj, patch, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			return write("update "+sub+" of", obj, func(obj client.Object) error { return c.SubResource(sub).Update(ctx, obj, opts...) })
		},
	})
}

// Get implements Workloads.
func (p *process) Get(context.Context, client.ObjectKey) (*workload.Cluster, error) {
	c := call{place: workloadCluster, what: "connect", refused: workload.ErrUnavailable, lost: workload.ErrUnavailable}
	err := p.through(c, func(bool) error { return nil })
	if err != nil {
		return nil, err
	}
	return &workload.Cluster{
		Client:    p.api(workloadCluster, p.world.workload.Client),
		Clientset: callingClientset{p.world.workload.Clientset, p},
	}, nil
}

// callingClientset is a Clientset whose calls that a drain makes are calls of a process.
type callingClientset struct {
	kubernetes.Interface
	p *process
}

func (c callingClientset) CoreV1() typedcorev1.CoreV1Interface {
	return callingCoreV1{c.Interface.CoreV1(), c.p}
}

func (c callingClientset) PolicyV1() typedpolicyv1.PolicyV1Interface {
	return callingPolicyV1{c.Interface.PolicyV1(), c.p}
}

type callingCoreV1 struct {
	typedcorev1.CoreV1Interface
	p *process
}

func (c callingCoreV1) Pods(namespace string) typedcorev1.PodInterface {
	return callingPods{c.CoreV1Interface.Pods(namespace), c.p}
}

type callingPods struct {
	typedcorev1.PodInterface
	p *process
}

func (c callingPods) List(ctx context.Context, opts metav1.ListOptions) (list *corev1.PodList, err error) {
	away := apierrors.NewServiceUnavailable("connection refused")
	err = c.p.through(call{place: workloadCluster, what: "list pods", refused: away}, func(bool) error {
		list, err = c.PodInterface.List(ctx, opts)
		return err
	})
	return list, err
}

type callingPolicyV1 struct {
	typedpolicyv1.PolicyV1Interface
	p *process
}

func (c callingPolicyV1) Evictions(string) typedpolicyv1.EvictionInterface {
	return callingEvictions{c.p}
}

type callingEvictions struct{ p *process }

// Evict implements EvictionInterface.
func (c callingEvictions) Evict(_ context.Context, e *policyv1.Eviction) error {
	evict := call{
		place: workloadCluster, what: "evict " + e.Name, writes: true,
		refused: apierrors.NewServiceUnavailable("connection refused"), lost: fmt.Errorf("evict: %w", context.DeadlineExceeded),
	}
	return c.p.through(evict, func(bool) error { c.p.world.evict(e.Namespace, e.Name); return nil })
}
