package nodes

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/capi-refit/refit/internal/node/nodetest"
	"github.com/capi-refit/refit/test/engine"
)

// Kind says what nodes are.
type Kind string

// The kinds.
const (
	// Auto takes Containers if Docker answers, else StandIns.
	Auto Kind = ""
	// Containers are machines with an init system of their own.
	Containers Kind = "containers with systemd and sshd"
	// Machines are what Cluster API's Docker provider has made. See Adopt.
	Machines Kind = "kubeadm machines"
	// StandIns are directories behind an sshd in this process.
	StandIns Kind = "in-process stand-ins"
)

// Options of a fleet.
type Options struct {
	// Names of the nodes. They are host names.
	Names []string
	Kind  Kind
	// Release is the Debian release of the containers. Default: "bookworm".
	Release string
	// Packages are Debian's that the containers have besides those that all have.
	Packages []string
	// LoopDevices lets the containers use loop devices, which are those of the machine that they run on.
	LoopDevices bool
	// Progress gets a line for each thing that takes time. Nil: nobody wants to know.
	Progress io.Writer
}

// Fleet is a set of running nodes.
type Fleet struct {
	kind Kind
	key  []byte

	mu    sync.Mutex
	nodes []*Node

	// start starts a node, which may not let us in yet.
	start   func(ctx context.Context, name string) (*Node, error)
	remove  func(context.Context) error
	stop    sync.Once
	stopErr error
}

// Start starts the nodes and returns when all of them let us in. They are removed by Stop, and also when ctx ends: give it a
// context that an interrupt ends. What a killed process has left is removed by the next Start.
func Start(ctx context.Context, o Options) (*Fleet, error) {
	if o.Release == "" {
		o.Release = "bookworm"
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Kind == Auto {
		o.Kind = StandIns
		if err := (engine.Engine{}).Answers(ctx); err == nil {
			o.Kind = Containers
		} else {
			say(o.Progress, "Docker does not answer (%v): the nodes are stand-ins", err)
		}
	}
	key, err := nodetest.NewKey()
	if err != nil {
		return nil, err
	}
	f := &Fleet{kind: o.Kind, key: key}
	f.prepareStandIns()
	if o.Kind == Containers {
		err = f.prepareContainers(ctx, o)
	}
	if err == nil {
		err = f.addAll(ctx, o)
	}
	if err != nil {
		return nil, errors.Join(err, f.Stop(context.WithoutCancel(ctx)))
	}
	context.AfterFunc(ctx, func() { _ = f.Stop(context.WithoutCancel(ctx)) })
	return f, nil
}

// Stop removes the nodes. It can be called again, and waits for a call that is under way.
func (f *Fleet) Stop(ctx context.Context) error {
	f.stop.Do(func() {
		if f.remove != nil {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
			defer cancel()
			f.stopErr = f.remove(ctx)
		}
	})
	return f.stopErr
}

// Kind returns what the nodes are: Containers or StandIns.
func (f *Fleet) Kind() Kind { return f.kind }

// Add starts one more node and returns when it lets us in.
func (f *Fleet) Add(ctx context.Context, name string) (*Node, error) {
	n, err := f.start(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := n.await(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes = append(f.nodes, n)
	return n, nil
}

// Nodes are the nodes that let us in.
func (f *Fleet) Nodes() []*Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.nodes)
}

// Node returns the node of a name, nil if there is none.
func (f *Fleet) Node(name string) *Node {
	for _, n := range f.Nodes() {
		if n.name == name {
			return n
		}
	}
	return nil
}

// PrivateKey lets user User into all nodes. It is in PEM.
func (f *Fleet) PrivateKey() []byte { return f.key }

// KnownHosts has a line for each node.
func (f *Fleet) KnownHosts() []byte {
	var all []byte
	for _, n := range f.Nodes() {
		all = append(all, n.KnownHosts()...)
	}
	return all
}

// addAll starts the nodes side by side, and keeps them in the order of their names.
func (f *Fleet) addAll(ctx context.Context, o Options) error {
	var (
		all   sync.WaitGroup
		errs  = make([]error, len(o.Names))
		began = time.Now()
	)
	for i, name := range o.Names {
		all.Go(func() {
			n, err := f.Add(ctx, name)
			if errs[i] = err; err == nil {
				say(o.Progress, "node %s (%s) answers at %s after %s", name, f.kind, n.Address(), time.Since(began).Round(100*time.Millisecond))
			}
		})
	}
	all.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.SortFunc(f.nodes, func(a, b *Node) int { return slices.Index(o.Names, a.name) - slices.Index(o.Names, b.name) })
	return errors.Join(errs...)
}

func (f *Fleet) prepareStandIns() {
	var mu sync.Mutex
	var started []*nodetest.Node
	f.remove = func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		var errs []error
		for _, n := range started {
			errs = append(errs, n.Close())
		}
		return errors.Join(errs...)
	}
	f.start = func(_ context.Context, name string) (*Node, error) {
		n, err := nodetest.Start(nodetest.Options{Name: name, User: User, UserKey: f.key})
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		started = append(started, n)
		return &Node{name: name, fleet: f, machine: standIn{n}, hostKey: n.HostKey(), address: n.Address()}, nil
	}
}

func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format+"\n", args...)
}

func randomID() string {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}
