package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/test/process"
)

const (
	// again is how often Pods are looked at.
	again = 200 * time.Millisecond
	// nodeName is the node of all Pods. There is no such Node.
	nodeName = "lab"
)

// refitPods selects the Pods that Kubelet runs: there is a program of refit only.
var refitPods = client.MatchingLabels{"app.kubernetes.io/name": "refit"}

// Kubelet stands for what runs Pods in a cluster: it binds those of refit to a node, starts bin/refit with the arguments, the environment, the volumes
// and the account of the Pod, asks what its readiness probe asks, tells the API server, and ends what is deleted.
//
// What a container would have and a process has not is said by further arguments: an address of the Pod's own (one of the loopback network for each),
// where the account's token is, in which namespace it is, and where the image's agents are.
type Kubelet struct {
	Client client.Client
	Admin  *rest.Config
	// BinDir holds refit and the agents in agents/, as `make build` puts them there.
	BinDir string
	// Dir is for volumes and logs.
	Dir string
	// Progress is told what happens.
	Progress io.Writer

	launcher *process.Launcher
	pods     sync.WaitGroup
	mu       sync.Mutex
	known    map[types.UID]bool
	started  int
}

// Run runs Pods until ctx ends, and returns when all of their processes have ended.
func (k *Kubelet) Run(ctx context.Context) {
	k.launcher, k.known = process.NewLauncher(), map[types.UID]bool{}
	defer k.launcher.Close()
	defer k.pods.Wait()
	for ctx.Err() == nil {
		var list corev1.PodList
		if err := k.Client.List(ctx, &list, refitPods); err == nil {
			for i := range list.Items {
				k.take(ctx, &list.Items[i])
			}
		}
		pause(ctx)
	}
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(again):
	}
}

// take has a Pod that is new run.
func (k *Kubelet) take(ctx context.Context, pod *corev1.Pod) {
	if k.known[pod.UID] {
		return
	}
	k.known[pod.UID] = true
	key, uid := client.ObjectKeyFromObject(pod), pod.UID
	k.pods.Go(func() {
		p := &podRun{kubelet: k}
		defer p.stop()
		for ctx.Err() == nil {
			var now corev1.Pod
			err := k.Client.Get(ctx, key, &now)
			if apierrors.IsNotFound(err) || err == nil && now.UID != uid {
				return
			}
			if err == nil {
				err = p.tend(ctx, &now)
			}
			if err != nil && ctx.Err() == nil {
				p.say("%s: %v", key, err)
			}
			pause(ctx)
		}
	})
}

// address returns one for a Pod. Each process on the loopback network may have as many as it likes.
func (k *Kubelet) address() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.started++
	return fmt.Sprintf("127.0.%d.%d", 64+k.started/250, 1+k.started%250)
}

// podRun is a Pod on its way from being bound to being gone.
type podRun struct {
	kubelet *Kubelet
	process *process.Process
	address string
	said    string
	grace   time.Duration
	starts  int
}

// say tells something once.
func (p *podRun) say(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); text != p.said {
		p.said = text
		_, _ = fmt.Fprintln(p.kubelet.Progress, text) // nobody can be told
	}
}

func (p *podRun) stop() {
	if p.process != nil {
		_ = p.process.Stop(p.grace) // how it ends is in its log
	}
}

// tend does what is to be done about the Pod next.
func (p *podRun) tend(ctx context.Context, pod *corev1.Pod) error {
	c := p.kubelet.Client
	switch {
	case !pod.DeletionTimestamp.IsZero():
		p.stop()
		err := c.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
		return client.IgnoreNotFound(err)
	case pod.Spec.NodeName == "":
		return c.SubResource("binding").Create(ctx, pod, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: nodeName},
		})
	case p.process == nil || ended(p.process):
		if p.process != nil {
			p.say("%s/%s has ended, and is started again: %v", pod.Namespace, pod.Name, p.process.Died())
		}
		return p.start(ctx, pod)
	}
	return p.report(ctx, pod, p.ready(ctx, pod))
}

func ended(p *process.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// report tells the API server whether the Pod is ready.
func (p *podRun) report(ctx context.Context, pod *corev1.Pod, ready bool) error {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == status {
			return nil
		}
	}
	container := pod.Spec.Containers[0]
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, p.address, []corev1.PodIP{{IP: p.address}}
	pod.Status.Conditions = nil
	for _, of := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady, corev1.PodScheduled} {
		c := corev1.PodCondition{Type: of, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}
		if of == corev1.ContainersReady || of == corev1.PodReady {
			c.Status = status
		}
		pod.Status.Conditions = append(pod.Status.Conditions, c)
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: container.Name, Image: container.Image, Ready: ready, Started: new(true), RestartCount: int32(p.starts - 1),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}
	return p.kubelet.Client.Status().Update(ctx, pod)
}

var errContainers = errors.New("there is a program for one container only")
