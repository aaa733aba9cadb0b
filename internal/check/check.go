// Package check looks at a management cluster for what would keep refit from updating machines in place.
package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
)

// Level is how bad something is.
type Level string

// The levels.
const (
	// Good: it is as it should be.
	Good Level = "OK"
	// Warning: machines are updated, but not all, or not as one may expect. It is also what can't be told.
	Warning Level = "Warning"
	// Error: nothing is updated in place there.
	Error Level = "Error"
)

// Finding is what was found out about one thing.
type Finding struct {
	// Check is the name of what was looked at, the same in each run.
	Check string `json:"check"`
	Level Level  `json:"level"`
	// Object is what it is about, such as KubeadmControlPlane fleet/prod; empty for the installation as a whole.
	Object string `json:"object,omitempty"`
	// Message says what is so.
	Message string `json:"message"`
	// Do says what to do; empty if all is well.
	Do string `json:"do,omitempty"`
}

// Checker looks at a management cluster. It changes nothing.
type Checker struct {
	// Client reads from the API server.
	Client client.Reader
	Clock  clock.PassiveClock
	// Namespace and Cluster bound the Clusters that are looked at; empty is all.
	Namespace, Cluster string
	// Workload reaches the API server of a workload cluster. Nil: those are not looked at.
	Workload func(ctx context.Context, cluster types.NamespacedName) (*rest.Config, error)
	// Nodes is to how many nodes of each Cluster it is logged in, all if it is negative, and Reach does so to the node of a Machine. Nil: to none.
	Nodes int
	Reach func(ctx context.Context, machine *clusterv1.Machine) error

	seen
	// logins are those that are under way, of nodes of all Clusters.
	logins chan struct{}
}

// seen is what was read once for all, or why it could not be.
type seen struct {
	// extensions are the ExtensionConfigs for updates in place.
	extensions    []runtimev1.ExtensionConfig
	extensionsErr error
	// clusters are the Clusters that are looked at, by namespace and name.
	clusters    []clusterv1.Cluster
	clustersErr error
	// namespaces are all of them, by name.
	namespaces    map[string]*corev1.Namespace
	namespacesErr error
}

// Run looks at everything, and returns what it finds by object, then by check. What could not be read is a finding, too.
func (c *Checker) Run(ctx context.Context) []Finding {
	c.extensions, c.extensionsErr = c.readExtensions(ctx)
	c.clusters, c.clustersErr = c.readClusters(ctx)
	c.namespaces, c.namespacesErr = c.readNamespaces(ctx)
	all := c.all(ctx)
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Check, b.Check), cmp.Compare(a.Message, b.Message))
	})
	return all
}

func (c *Checker) all(ctx context.Context) []Finding {
	var all []Finding
	for _, look := range []func(context.Context) []Finding{
		c.definitions, c.managers, c.extension, c.admission, c.guard, c.deployment, c.leader,
	} {
		all = append(all, look(ctx)...)
	}
	switch {
	case c.clustersErr != nil:
		return append(all, unknown("clusters", "", c.clustersErr))
	case len(c.clusters) == 0:
		all = append(all, c.optedIn()...) // else it is told of each namespace
		return append(all, Finding{Check: "clusters", Level: Warning, Message: "there are no such Clusters", Do: "make a Cluster, or look elsewhere with --namespace and --cluster"})
	}
	all = append(all, c.policies(ctx)...)
	return append(all, c.fleet(ctx)...)
}

// atOnce is how many Clusters, and nodes of all of them, are looked at together: one that does not answer keeps others waiting for seconds.
const atOnce = 10

// fleet looks at each Cluster. Where Cluster API asks nobody it says that, and no more, unless it was told to look there: as before the namespace is labelled.
func (c *Checker) fleet(ctx context.Context) []Finding {
	all, unasked := c.selected()
	all = append(all, c.watched(ctx, unasked)...)
	c.logins = make(chan struct{}, atOnce)
	found := make([][]Finding, len(c.clusters))
	var looks errgroup.Group
	looks.SetLimit(atOnce)
	for i := range c.clusters {
		if unasked[c.clusters[i].Namespace] && c.Namespace == "" && c.Cluster == "" {
			continue
		}
		looks.Go(func() error {
			found[i] = c.cluster(ctx, &c.clusters[i])
			return nil
		})
	}
	_ = looks.Wait() // none returns an error
	return append(all, slices.Concat(found...)...)
}

func (c *Checker) cluster(ctx context.Context, cluster *clusterv1.Cluster) (all []Finding) {
	for _, look := range []func(context.Context, *clusterv1.Cluster) []Finding{
		c.paused, c.access, c.controlPlane, c.deployments, c.healthChecks, c.workload, c.nodes,
	} {
		all = append(all, look(ctx, cluster)...)
	}
	return all
}

// Worst returns the worst level of findings.
func Worst(all []Finding) Level {
	order := []Level{Good, Warning, Error}
	worst := Good
	for _, f := range all {
		if slices.Index(order, f.Level) > slices.Index(order, worst) {
			worst = f.Level
		}
	}
	return worst
}

// readClusters returns the Clusters that are looked at, by namespace and name.
func (c *Checker) readClusters(ctx context.Context) ([]clusterv1.Cluster, error) {
	var list clusterv1.ClusterList
	if err := c.Client.List(ctx, &list, client.InNamespace(c.Namespace)); err != nil {
		return nil, fmt.Errorf("list Clusters: %w", err)
	}
	found := slices.DeleteFunc(list.Items, func(o clusterv1.Cluster) bool { return c.Cluster != "" && o.Name != c.Cluster })
	slices.SortFunc(found, func(a, b clusterv1.Cluster) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return found, nil
}

// unknown is what could not be looked at.
func unknown(check, object string, err error) Finding {
	return Finding{Check: check, Level: Warning, Object: object, Message: "it can't be told: " + err.Error(), Do: "ask as somebody who may read that"}
}

func good(check, object, message string) Finding {
	return Finding{Check: check, Level: Good, Object: object, Message: message}
}

// nameOf returns an object as people know it.
func nameOf(kind string, o client.Object) string {
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}

// some names the first of many.
func some(names []string) string {
	const most = 5
	slices.Sort(names)
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
