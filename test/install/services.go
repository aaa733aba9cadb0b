package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Services stands for a cluster's DNS and kube-proxy: a proxy through which programs outside of Pods reach what a Service selects by the Service's
// name, at its port. Programs are told of it by Env. It knows no other names.
type Services struct {
	// Client is set before anybody asks.
	Client client.Client

	listener net.Listener
	server   *http.Server
	done     sync.WaitGroup
}

// ServeServices starts it at an address of its own.
func ServeServices() (*Services, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Services{listener: l}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	s.done.Go(func() { _ = s.server.Serve(l) }) // until it is closed
	return s, nil
}

// Env is the environment that has a program go through it. What is on the loopback network is reached directly by Go's programs.
func (s *Services) Env() []string {
	return []string{"HTTPS_PROXY=http://" + s.listener.Addr().String(), "NO_PROXY=127.0.0.0/8"}
}

// Close ends it.
func (s *Services) Close() error {
	err := s.server.Close()
	s.done.Wait()
	return err
}

// ServeHTTP passes a connection on.
func (s *Services) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to, err := s.backend(r.Context(), r.Host)
	if r.Method != http.MethodConnect || err != nil {
		http.Error(w, fmt.Sprintf("%s %s: %v", r.Method, r.Host, err), http.StatusBadGateway)
		return
	}
	there, err := net.DialTimeout("tcp", to, time.Second)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer there.Close() //nolint:errcheck // the other end knows best
	here, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer here.Close() //nolint:errcheck // the other end knows best
	if _, err := io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	ended := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{here, there}, {there, here}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1]) // it ends when one of them goes
			ended <- struct{}{}
		}()
	}
	<-ended
}

// backend returns the address of a ready Pod that a Service selects, given as name.namespace.svc:port.
func (s *Services) backend(ctx context.Context, host string) (string, error) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return "", err
	}
	parts := strings.Split(name, ".")
	if len(parts) != 3 || parts[2] != "svc" || s.Client == nil {
		return "", errors.New("it is no name of a Service")
	}
	var service corev1.Service
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: parts[1], Name: parts[0]}, &service); err != nil {
		return "", err
	}
	var pods corev1.PodList
	if err := s.Client.List(ctx, &pods, client.InNamespace(parts[1]), client.MatchingLabels(service.Spec.Selector)); err != nil {
		return "", err
	}
	for _, p := range service.Spec.Ports {
		if strconv.Itoa(int(p.Port)) != port {
			continue
		}
		for i := range pods.Items {
			if to := target(&pods.Items[i], p.TargetPort.String()); to != "" {
				return to, nil
			}
		}
		return "", errors.New("no Pod of it is ready")
	}
	return "", fmt.Errorf("the Service has no port %s", port)
}

// target returns the address of one of a Pod's ports, if the Pod is ready and has it.
func target(pod *corev1.Pod, port string) string {
	if !pod.DeletionTimestamp.IsZero() || !isReady(pod) {
		return ""
	}
	for _, p := range pod.Spec.Containers[0].Ports {
		if number := strconv.Itoa(int(p.ContainerPort)); p.Name == port || number == port {
			return net.JoinHostPort(pod.Status.PodIP, number)
		}
	}
	return ""
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Publish has a Service have an endpoint that is ready, as a cluster's own controller does where a Pod is. Its address is one for documents, which nobody
// connects to: the API server takes none of the loopback, where Pods are here.
func (m *Management) Publish(ctx context.Context, service client.ObjectKey) error {
	var of corev1.Service
	if err := m.Client.Get(ctx, service, &of); err != nil {
		return fmt.Errorf("reading the Service whose endpoint is made: %w", err)
	}
	slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}}}
	slice.Namespace, slice.Name, slice.Labels = of.Namespace, of.Name, map[string]string{discoveryv1.LabelServiceName: of.Name}
	for _, p := range of.Spec.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port})
	}
	return client.IgnoreAlreadyExists(m.Client.Create(ctx, slice))
}
