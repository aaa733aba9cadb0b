package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/test/lab"
	"github.com/capi-refit/refit/test/nodes"
	"github.com/capi-refit/refit/test/process"
	"github.com/capi-refit/refit/webhook"
)

// ExtensionName is the name of the ExtensionConfig.
const ExtensionName = "refit"

// Options say how to start a System.
type Options struct {
	// Source is the root of the project's source, where the CRDs are.
	Source string
	// BinDir holds refit, and the agents in agents/, as `make build` puts them there.
	BinDir string
	// Dir is where kubeconfig and logs are. Empty: a temporary directory that Stop removes.
	Dir string
	// Nodes is the kind of nodes. Auto takes containers when Docker answers. With Machines the first cluster is a real one.
	Nodes nodes.Kind
	// MachineVersions are the versions of Kubernetes that real machines can have; the first is the one that they begin with. See lab.Options.
	MachineVersions []string
	// AllowPaths are refit's --allow-paths.
	AllowPaths []string
	// Soak is refit's --soak. Scenarios that are about something else don't wait for it; those that are not have a policy say it.
	Soak time.Duration
	// Shards are refit's --shards; 0 for one.
	Shards int
	// Registered has other extensions be updaters: refit's --registered-updaters.
	Registered bool
	// ControlPlaneReplicas and WorkerReplicas are those of the first cluster. Nil: as lab.ClusterOptions has them.
	ControlPlaneReplicas, WorkerReplicas *int32
	// More are further clusters beside the first one. Each needs a namespace of its own. Those of the Docker backend are real
	// ones.
	More []lab.ClusterOptions
	// Early has Start return when the clusters with real machines have come up. Ready waits for each of the others.
	Early bool
	// Progress gets a line for each thing that takes time.
	Progress io.Writer
}

// System is a running system.
type System struct {
	Lab      *lab.Lab
	Cluster  *lab.Cluster
	Fleet    *nodes.Fleet
	Replicas []*Replica
	// More are the same system, about the further clusters.
	More []*System
	// Client knows the types of Cluster API and of refit.
	Client client.Client

	options  Options
	launcher *process.Launcher
	certDir  string
	clients  *clients
	hooks    string // the address of the hooks
	// admission is the address at which API servers ask.
	admission string
	bundle    []byte // with which both are verified
	// kubeconfig is refit's, with the rights that it has in a real installation.
	kubeconfig string
	cloud      *cloud
	undo       []func() error

	// ready is closed when the cluster has come up, or failed says why not. It is nil as long as it is not being started.
	ready  chan struct{}
	failed error
}

// Start starts a system and returns when the cluster's machines run, each with a node that answers.
func Start(ctx context.Context, o Options) (*System, error) {
	s := &System{options: o, launcher: process.NewLauncher()}
	s.onStop(func() error { s.launcher.Close(); return nil })
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Ready waits until the cluster's machines run, each with a node that answers.
func (s *System) Ready() error {
	<-s.ready
	return s.failed
}

// Stop ends all that Start has started, last first.
func (s *System) Stop() error {
	if s.ready != nil {
		<-s.ready // what is being started is not known yet
	}
	var errs []error
	for i := len(s.undo) - 1; i >= 0; i-- {
		errs = append(errs, s.undo[i]())
	}
	s.undo = nil
	return errors.Join(errs...)
}

func (s *System) onStop(f func() error) { s.undo = append(s.undo, f) }

func (s *System) start(ctx context.Context) error {
	certified, err := s.certify()
	if err != nil {
		return err
	}
	s.Lab, err = lab.Start(ctx, lab.Options{
		Backend: s.backend(), MachineVersions: s.options.MachineVersions, Dir: s.options.Dir, Progress: s.options.Progress, ManagerArgs: certified,
		CRDPaths: []string{filepath.Join(s.options.Source, "config", "crd", "bases")},
	})
	if err != nil {
		return err
	}
	s.onStop(s.Lab.Stop)
	if err := s.connect(); err != nil {
		return err
	}
	if err := s.serve(ctx); err != nil {
		return err
	}
	return s.startClusters(ctx)
}

// startClusters starts all clusters: those with real machines first, because kubeadm gives up on a member of etcd that takes two
// minutes to join, and the others side by side.
func (s *System) startClusters(ctx context.Context) error {
	var later []func() error
	start := func(s *System, o lab.ClusterOptions) error {
		bring := func() error {
			defer close(s.ready)
			s.failed = s.startCluster(ctx, o)
			return s.failed
		}
		if o.Backend == lab.Docker {
			s.ready = make(chan struct{})
			return bring()
		}
		later = append(later, bring)
		return nil
	}
	if err := start(s, s.clusterOptions()); err != nil {
		return err
	}
	for _, o := range s.options.More {
		other := *s
		other.undo, other.More, other.ready = nil, nil, nil
		other.options.Nodes = s.kindOf(o)
		s.More = append(s.More, &other)
		s.onStop(other.Stop)
		if err := start(&other, o); err != nil {
			return err
		}
	}
	for _, one := range append([]*System{s}, s.More...) {
		if one.ready == nil {
			one.ready = make(chan struct{})
		}
	}
	var group errgroup.Group // its own context would end with Wait, and what has started lives on
	for _, bring := range later {
		group.Go(bring)
	}
	if s.options.Early {
		return nil
	}
	return group.Wait()
}

// kindOf returns what the nodes of a further cluster are.
func (s *System) kindOf(o lab.ClusterOptions) nodes.Kind {
	switch {
	case o.Backend == lab.Docker:
		return nodes.Machines
	case o.Backend == lab.InMemory && s.options.Nodes == nodes.Machines:
		return nodes.Auto
	default:
		return s.options.Nodes
	}
}

// backend is that of the lab: Docker's, which has both, when any cluster is a real one.
func (s *System) backend() lab.Backend {
	isReal := func(o lab.ClusterOptions) bool { return o.Backend == lab.Docker }
	if s.options.Nodes == nodes.Machines || slices.ContainsFunc(s.options.More, isReal) {
		return lab.Docker
	}
	return lab.InMemory
}

// clusterOptions are those of the first cluster.
func (s *System) clusterOptions() lab.ClusterOptions {
	o := lab.ClusterOptions{Backend: lab.InMemory, ControlPlaneReplicas: s.options.ControlPlaneReplicas, WorkerReplicas: s.options.WorkerReplicas}
	if s.options.Nodes == nodes.Machines {
		o.Backend = lab.Docker
	}
	return o
}

func (s *System) startCluster(ctx context.Context, o lab.ClusterOptions) error {
	var err error
	if s.Cluster, err = s.Lab.CreateCluster(ctx, o); err != nil {
		return err
	}
	if err := s.Cluster.GrantAccess(ctx); err != nil {
		return err
	}
	return s.startNodes(ctx)
}

func (s *System) connect() error {
	scheme, err := lab.Scheme()
	if err != nil {
		return err
	}
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, admissionregistrationv1.AddToScheme, refitv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	s.Client, err = client.New(s.Lab.Config, client.Options{Scheme: scheme})
	return err
}

// certify makes the certificates of refit and of its clients, and returns the arguments that have managers show theirs.
func (s *System) certify() (map[lab.Program][]string, error) {
	dir, err := os.MkdirTemp("", "refit-certs-")
	if err != nil {
		return nil, err
	}
	s.onStop(func() error { return os.RemoveAll(dir) })
	s.certDir = dir
	if s.bundle, err = webhook.WriteSelfSigned(dir, []string{"127.0.0.1"}, time.Now()); err != nil {
		return nil, err
	}
	if s.clients, err = newClients(dir); err != nil {
		return nil, err
	}
	return s.clients.managerArgs(dir)
}

// serve starts two replicas behind one address and registers them.
func (s *System) serve(ctx context.Context) error {
	var err error
	if err := s.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: leaderNamespace}}); err != nil {
		return err
	}
	if s.kubeconfig, err = s.installAccount(ctx); err != nil {
		return err
	}
	var backends, admission []string
	for i := range 2 {
		r, err := s.newReplica(ctx, fmt.Sprintf("refit-%d", i))
		if err != nil {
			return err
		}
		s.Replicas = append(s.Replicas, r)
		backends, admission = append(backends, r.hooks), append(admission, r.admission)
	}
	if err := s.serveAdmission(ctx, admission); err != nil {
		return err
	}
	b, err := newBalancer(backends)
	if err != nil {
		return err
	}
	s.onStop(b.close)
	s.hooks = b.address()
	s.say("refit serves at https://%s with %d replicas", b.address(), len(backends))
	err = s.Client.Create(ctx, &runtimev1.ExtensionConfig{
		ObjectMeta: metav1.ObjectMeta{Name: ExtensionName},
		Spec: runtimev1.ExtensionConfigSpec{
			ClientConfig:      runtimev1.ClientConfig{URL: "https://" + b.address(), CABundle: s.bundle},
			NamespaceSelector: &metav1.LabelSelector{},
		},
	})
	if err != nil {
		return fmt.Errorf("register refit: %w", err)
	}
	return s.Lab.WaitForExtension(ctx, ExtensionName)
}

func (s *System) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.options.Progress, format+"\n", args...) // nobody can be told
}
