//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// serviceName is that of a service whose pods are drained and started again elsewhere.
	serviceName = "drained"
	// servicePods is how many pods it has, and serviceAvailable how many of them are to be there at any time.
	servicePods, serviceAvailable = 3, 2
	// servicePort is where its pods answer.
	servicePort = 18090
)

// serviceCorefile has CoreDNS answer HTTP for ten seconds more when it is told to end: as a pod does that is to lose no request.
const serviceCorefile = ".:15454 {\n  health :%d {\n    lameduck 10s\n  }\n}\n"

// service is one in the cluster, and how often it was asked and answered.
type service struct {
	deployment client.ObjectKey

	mu       sync.Mutex
	answered int
	lost     []string
}

// serve starts a service of three pods on different nodes, with a PodDisruptionBudget that lets one of them leave at a time. It is
// asked through all nodes in turn, each time over a connection of its own, until the function that it returns is called, which also
// removes it.
func (u *suite) serve(ctx context.Context, t *testing.T) (*service, func()) {
	t.Helper()
	workload := u.workload(ctx, t)
	objects := serviceObjects(u.dnsImage(ctx, t, workload))
	for _, o := range objects {
		require.NoError(t, workload.Create(ctx, o))
	}
	var made corev1.Service
	require.NoError(t, workload.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: serviceName}, &made))
	var urls []string
	for _, name := range u.machines(ctx, t) {
		at := net.JoinHostPort(u.Fleet.Node(name).Address().Host, strconv.Itoa(int(made.Spec.Ports[0].NodePort)))
		urls = append(urls, "http://"+at+"/health")
	}
	s := &service{deployment: client.ObjectKeyFromObject(&made)}
	require.NoError(t, poll(ctx, 500*time.Millisecond, func(ctx context.Context) (bool, error) {
		available, err := s.available(ctx, workload)
		for _, url := range urls {
			if err == nil {
				err = askAnew(ctx, url)
			}
		}
		return err == nil && available == servicePods, nil
	}), "the service does not answer through all nodes")
	asking, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { s.askInTurn(asking, urls) })
	end := func() { stop(); done.Wait() }
	t.Cleanup(end)
	return s, func() {
		end()
		for _, o := range objects {
			require.NoError(t, workload.Delete(ctx, o))
		}
	}
}

// dnsImage is the image of CoreDNS, which every node has.
func (u *suite) dnsImage(ctx context.Context, t *testing.T, workload client.Client) string {
	t.Helper()
	var dns appsv1.Deployment
	require.NoError(t, workload.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "coredns"}, &dns))
	return dns.Spec.Template.Spec.Containers[0].Image
}

func serviceObjects(image string) []client.Object {
	name, labels := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: serviceName}, map[string]string{"app": serviceName}
	// All nodes share two cores: a pod that is slow is not one that is away.
	probe := &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 10, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/health", Port: intstr.FromInt32(servicePort)},
	}}
	apart := &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: labels}},
		},
	}}
	return []client.Object{
		&corev1.ConfigMap{ObjectMeta: name, Data: map[string]string{"Corefile": fmt.Sprintf(serviceCorefile, servicePort)}},
		&appsv1.Deployment{ObjectMeta: name, Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](servicePods), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Affinity:    apart,
				Tolerations: []corev1.Toleration{{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists}},
				Containers: []corev1.Container{{
					Name: "serve", Image: image, ImagePullPolicy: corev1.PullIfNotPresent, ReadinessProbe: probe,
					Args:         []string{"-conf", "/config/Corefile"},
					Resources:    corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")}},
					VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/config"}},
				}},
				Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
					ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name.Name}},
				}}},
			}},
		}},
		&corev1.Service{ObjectMeta: name, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: labels,
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(servicePort)}},
		}},
		&policyv1.PodDisruptionBudget{ObjectMeta: name, Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(serviceAvailable)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		}},
	}
}

// available is how many pods of the service can be had.
func (s *service) available(ctx context.Context, workload client.Client) (int32, error) {
	var d appsv1.Deployment
	err := workload.Get(ctx, s.deployment, &d)
	return d.Status.AvailableReplicas, err
}

// stands returns how the service's pods, its PodDisruptionBudget and nodes stand.
func (s *service) stands(ctx context.Context, workload client.Client, nodes []corev1.Node) string {
	lines := []string{"at " + clock(time.Now())}
	for _, n := range nodes {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				lines = append(lines, fmt.Sprintf("node %s: ready %s since %s, unschedulable %t", n.Name, c.Status, clock(c.LastTransitionTime.Time), n.Spec.Unschedulable))
			}
		}
	}
	var pods corev1.PodList
	if err := workload.List(ctx, &pods, client.InNamespace(s.deployment.Namespace), client.MatchingLabels{"app": serviceName}); err != nil {
		return err.Error()
	}
	for _, p := range pods.Items {
		lines = append(lines, fmt.Sprintf("pod %s on %s: %s, created %s, ends %v", p.Name, p.Spec.NodeName, p.Status.Phase, clock(p.CreationTimestamp.Time), p.DeletionTimestamp))
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady || c.Type == corev1.DisruptionTarget {
				lines = append(lines, fmt.Sprintf("  %s %s since %s %s %s", c.Type, c.Status, clock(c.LastTransitionTime.Time), c.Reason, c.Message))
			}
		}
	}
	var budget policyv1.PodDisruptionBudget
	if err := workload.Get(ctx, s.deployment, &budget); err != nil {
		return err.Error()
	}
	return strings.Join(append(lines, fmt.Sprintf("budget: %+v", budget.Status)), "\n")
}

func clock(t time.Time) string { return t.UTC().Format(time.TimeOnly) }

// askInTurn asks ten times a second until ctx ends.
func (s *service) askInTurn(ctx context.Context, urls []string) {
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
		url := urls[i%len(urls)]
		err := askAnew(ctx, url)
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		if err == nil {
			s.answered++
		} else {
			s.lost = append(s.lost, time.Now().UTC().Format("15:04:05.0 ")+err.Error())
		}
		s.mu.Unlock()
	}
}

// forgive forgets which requests were lost until now, and returns how many.
func (s *service) forgive() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.lost)
	s.lost = nil
	return n
}

// requireNoneLost demands that each request was answered.
func (s *service) requireNoneLost(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Logf("of %d requests to the service %d were lost", s.answered+len(s.lost), len(s.lost))
	require.Empty(t, s.lost, strings.Join(s.lost, "\n"))
	require.Greater(t, s.answered, 100)
}

// askAnew asks over a connection of its own, so that the request is sent to one of those pods that are there now.
func askAnew(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // who is slow answers nevertheless
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only the status counts
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}
