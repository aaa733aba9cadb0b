package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/test/bench/floor"
	"github.com/capi-refit/refit/test/lab"
	"github.com/capi-refit/refit/test/process"
	"github.com/capi-refit/refit/webhook"
)

// stage is where the servers run: beside a real management cluster, which two of them need.
type stage struct {
	refit, reference *contender
	floor            *contender    // answers without a look at the request
	client           client.Client // of the management cluster
	undo             []func() error
}

func (s *stage) stop() error {
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		errs = append(errs, s.undo[i]())
	}
	return errors.Join(errs...)
}

func newStage(ctx context.Context, out io.Writer, connections int) (*stage, error) {
	s := &stage{}
	if err := s.start(ctx, out, connections); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *stage) start(ctx context.Context, out io.Writer, connections int) error {
	programs, err := lab.Build(ctx, out, lab.ReferenceExtension)
	if err != nil {
		return err
	}
	l, err := lab.Start(ctx, lab.Options{Progress: io.Discard, CRDPaths: []string{"config/crd/bases"}})
	if err != nil {
		return err
	}
	s.undo = append(s.undo, l.Stop)
	s.client = l.Client
	if err := recordedMachines(ctx, l.Client); err != nil {
		return err
	}
	launcher := process.NewLauncher()
	s.undo = append(s.undo, func() error { launcher.Close(); return nil })
	run := func(name, path string, args ...string) (*contender, error) {
		return s.run(ctx, launcher, l, name, path, connections, args...)
	}
	if s.refit, err = run("refit", "bin/refit", "serve", "--agent-dir=bin/agents", "--allow-paths=/etc/demo.conf"); err != nil {
		return err
	}
	if s.reference, err = run("reference extension", programs[lab.ReferenceExtension]); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if s.floor, err = run("floor", self, floor.Name); err == nil {
		s.floor.paths = s.refit.paths // it serves any
	}
	return err
}

// run starts a server with flags that all of them know, or ignore.
func (s *stage) run(ctx context.Context, launcher *process.Launcher, l *lab.Lab, name, path string, connections int, args ...string) (*contender, error) {
	certs, err := os.MkdirTemp("", "refit-bench-")
	if err != nil {
		return nil, err
	}
	s.undo = append(s.undo, func() error { return os.RemoveAll(certs) })
	bundle, err := webhook.WriteSelfSigned(certs, []string{"127.0.0.1"}, time.Now())
	if err != nil {
		return nil, err
	}
	ports, err := lab.FreePorts(3)
	if err != nil {
		return nil, err
	}
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	args = append(args, "--kubeconfig="+l.Kubeconfig, "--webhook-port="+strconv.Itoa(ports[0]), "--webhook-cert-dir="+certs,
		"--health-addr="+at(ports[1]), "--diagnostics-address="+at(ports[2]), "--insecure-diagnostics")
	p, err := launcher.Start(name, filepath.Join(l.LogDir, name+".log"), path, args, os.Environ())
	if err != nil {
		return nil, err
	}
	s.undo = append(s.undo, func() error { return p.Stop(10 * time.Second) })
	for {
		c, err := newContender(ctx, name, "https://"+at(ports[0]), bundle, connections)
		if err == nil {
			err = ready(ctx, at(ports[1]))
		}
		if err == nil {
			c.pid = p.PID
			return c, nil
		}
		select {
		case <-p.Done():
			return nil, p.Died()
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s: %w", name, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// ready returns an error unless a server has read what it needs to answer.
func ready(ctx context.Context, health string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+health+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New("it is not ready: " + response.Status)
	}
	return nil
}

// recordedMachines makes the Machines with their objects, and their Cluster, that the recorded requests speak of, as being updated in place. They
// are paused: what is measured is how fast the hook answers that an update is in progress, which is what it is asked most.
func recordedMachines(ctx context.Context, c client.Client) error {
	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lab"}}); err != nil {
		return err
	}
	if err := c.Create(ctx, recordedCluster()); err != nil {
		return fmt.Errorf("create the Cluster: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(recordedDir, "updatemachine-*.json"))
	if err != nil {
		return err
	}
	for _, f := range files {
		objects, err := recordedObjects(f)
		if err != nil {
			return err
		}
		for _, o := range objects {
			if err := c.Create(ctx, o); err != nil {
				return fmt.Errorf("create %s %s: %w", o.GetKind(), o.GetName(), err)
			}
		}
	}
	return nil
}

// recorded returns an error unless refit has recorded the updates that it was asked for: a refusal is answered by other code.
func (s *stage) recorded(ctx context.Context) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "capi-refit.dev", Version: "v1alpha1", Kind: "MachineUpdateList"})
	if err := s.client.List(ctx, list); err != nil {
		return fmt.Errorf("list the updates that were recorded: %w", err)
	}
	if len(list.Items) == 0 {
		return errors.New("refit has recorded no update: the recorded requests are not about the Machines that were made")
	}
	return nil
}

// recordedCluster is that of all recorded requests. By its labels it is known which policies are for it.
func recordedCluster() *clusterv1.Cluster {
	const group, name = "infrastructure.cluster.x-k8s.io", "c1"
	return &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name},
		Spec: clusterv1.ClusterSpec{
			Paused:            ptr.To(true),
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: group, Kind: "DevCluster", Name: name},
		},
	}
}

// recordedObjects are those of a recorded request, as Cluster API had them when it sent it: with the annotations of an update in place.
func recordedObjects(file string) ([]*unstructured.Unstructured, error) {
	body, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var request struct {
		Desired map[string]*unstructured.Unstructured `json:"desired"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, o := range request.Desired {
		annotations := o.GetAnnotations()
		annotations[clusterv1.PausedAnnotation] = ""
		o.SetAnnotations(annotations)
		objects = append(objects, o)
	}
	return objects, nil
}
