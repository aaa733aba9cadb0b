package lab

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"fmt"
	"maps"
	"slices"
	"text/template"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/test/apiserver"
)

//go:embed manifests
var manifestFiles embed.FS

var manifestTemplates = template.Must(template.New("").Option("missingkey=error").ParseFS(manifestFiles, "manifests/*.yaml"))

// manifests are the templates of a cluster, by backend.
var manifests = map[Backend]string{InMemory: "cluster.yaml", Docker: "cluster-docker.yaml"}

// ClusterOptions say which cluster to create. The zero value makes lab/c1 with three control-plane machines and two workers.
type ClusterOptions struct {
	// Backend is the lab's if empty. A lab with the Docker backend has both.
	Backend   Backend
	Namespace string
	Name      string
	// Version is v1.36.0 if empty, or with the Docker backend the first of the lab's MachineVersions.
	Version string
	// ControlPlaneReplicas is 3 if nil. With less than 3, Cluster API updates some or all of them by replacement.
	ControlPlaneReplicas *int32
	// WorkerReplicas is 2 if nil.
	WorkerReplicas *int32
	// Topology makes the cluster from a ClusterClass, on the in-memory backend only. Cluster.SetVersion upgrades it as a
	// whole, and Cluster API calls the lifecycle hooks of extensions on the way.
	Topology bool
}

// withDefaults fills in what is not said. machineVersion is for the Docker backend.
func (o ClusterOptions) withDefaults(backend Backend, machineVersion string) ClusterOptions {
	o.Backend = cmp.Or(o.Backend, backend)
	version := "v1.36.0"
	if o.Backend == Docker {
		version = machineVersion
	}
	for _, field := range []struct {
		value  *string
		preset string
	}{{&o.Namespace, "lab"}, {&o.Name, "c1"}, {&o.Version, version}} {
		if *field.value == "" {
			*field.value = field.preset
		}
	}
	if o.ControlPlaneReplicas == nil {
		o.ControlPlaneReplicas = new(int32(3))
	}
	if o.WorkerReplicas == nil {
		o.WorkerReplicas = new(int32(2))
	}
	return o
}

// A Cluster is a cluster that the lab's managers manage: a KubeadmControlPlane and a MachineDeployment.
type Cluster struct {
	client.ObjectKey

	lab     *Lab
	backend Backend
	// controlPlane and workers are the names of the KubeadmControlPlane and the MachineDeployment.
	controlPlane, workers string
	// server is the real API server beside the in-memory provider's; nil if there is none.
	server *apiserver.Server
}

// CreateCluster creates a cluster and waits until every machine is running and has its node.
//
// One with the in-memory backend also gets a real API server, which has the same nodes, and refit access to it (see GrantAccess).
// Cluster API keeps to the in-memory provider's. A cluster with a topology is for Cluster API only, and has no real one.
func (l *Lab) CreateCluster(ctx context.Context, options ClusterOptions) (*Cluster, error) {
	options = options.withDefaults(l.options.Backend, l.options.MachineVersions[0])
	var more map[string]any
	switch {
	case options.Topology && options.Backend != InMemory:
		return nil, fmt.Errorf("there is no ClusterClass for the %s backend", options.Backend)
	case options.Backend == Docker && l.machines == nil:
		return nil, fmt.Errorf("the lab was started without the %s backend", Docker)
	case options.Backend == Docker:
		var err error
		if more, err = l.machines.values(options.Version); err != nil {
			return nil, err
		}
	}
	objects, err := renderCluster(options, more)
	if err != nil {
		return nil, err
	}
	cluster := &Cluster{ObjectKey: client.ObjectKey{Namespace: options.Namespace, Name: options.Name}, lab: l, backend: options.Backend}
	l.progress("creating cluster %s", cluster)
	if err := l.create(ctx, objects); err != nil {
		return nil, err
	}
	if err := cluster.run(ctx, options.Backend == InMemory && !options.Topology); err != nil {
		return nil, err
	}
	return cluster, nil
}

// run waits until the cluster is there, with the real API server if it is to have one. That starts while the machines do.
func (c *Cluster) run(ctx context.Context, realAPI bool) error {
	if realAPI {
		if err := c.startWorkloadAPI(ctx); err != nil {
			return err
		}
	}
	if err := c.findParts(ctx); err != nil {
		return err
	}
	if err := c.WaitForRollout(ctx); err != nil || !realAPI {
		return err
	}
	if err := c.startMirror(ctx); err != nil {
		return err
	}
	return c.GrantAccess(ctx)
}

// create creates objects in their order. Clusters may share a Namespace.
func (l *Lab) create(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		err := l.Client.Create(ctx, object)
		if object.GetKind() == "Namespace" && apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("creating %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// renderCluster returns the objects of a cluster, in the order of its manifest.
func renderCluster(options ClusterOptions, more map[string]any) ([]*unstructured.Unstructured, error) {
	// text/template compares numbers, but does not look behind pointers for that.
	values := map[string]any{
		"Namespace": options.Namespace, "Name": options.Name, "Version": options.Version,
		"ControlPlaneReplicas": *options.ControlPlaneReplicas, "WorkerReplicas": *options.WorkerReplicas,
	}
	maps.Copy(values, more)
	name := manifests[options.Backend]
	if options.Topology {
		name = topologyManifest
	}
	var manifest bytes.Buffer
	if err := manifestTemplates.ExecuteTemplate(&manifest, name, values); err != nil {
		return nil, fmt.Errorf("rendering the cluster: %w", err)
	}
	documents, err := splitYAML(manifest.Bytes())
	if err != nil {
		return nil, fmt.Errorf("rendering the cluster: %w", err)
	}
	var objects []*unstructured.Unstructured
	for _, document := range documents {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, object); err != nil {
			return nil, fmt.Errorf("rendering the cluster: %w", err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// Machines returns all Machines of the cluster.
func (c *Cluster) Machines(ctx context.Context) ([]clusterv1.Machine, error) {
	return c.machines(ctx)
}

// ControlPlaneMachines returns the Machines of the KubeadmControlPlane.
func (c *Cluster) ControlPlaneMachines(ctx context.Context) ([]clusterv1.Machine, error) {
	return c.machines(ctx, client.HasLabels{clusterv1.MachineControlPlaneLabel})
}

// WorkerMachines returns the Machines of the MachineDeployment.
func (c *Cluster) WorkerMachines(ctx context.Context) ([]clusterv1.Machine, error) {
	return c.machines(ctx, client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: c.workers})
}

func (c *Cluster) machines(ctx context.Context, options ...client.ListOption) ([]clusterv1.Machine, error) {
	var list clusterv1.MachineList
	options = append(options, client.InNamespace(c.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: c.Name})
	if err := c.lab.Client.List(ctx, &list, options...); err != nil {
		return nil, fmt.Errorf("listing the machines of %s: %w", c, err)
	}
	return list.Items, nil
}

// Versions are the versions of Kubernetes of a cluster's machines, each once and sorted.
type Versions struct {
	ControlPlane, Workers []string
}

// Versions returns the versions that the specs of all Machines name. A replacement has the new one from its beginning, and
// so has a machine that is being updated in place.
func (c *Cluster) Versions(ctx context.Context) (Versions, error) {
	controlPlane, err := c.ControlPlaneMachines(ctx)
	if err != nil {
		return Versions{}, err
	}
	workers, err := c.WorkerMachines(ctx)
	if err != nil {
		return Versions{}, err
	}
	return Versions{ControlPlane: versions(controlPlane), Workers: versions(workers)}, nil
}

func versions(machines []clusterv1.Machine) []string {
	var versions []string
	for _, machine := range machines {
		versions = append(versions, machine.Spec.Version)
	}
	slices.Sort(versions)
	return slices.Compact(versions)
}

func (c *Cluster) controlPlaneKey() client.ObjectKey {
	return client.ObjectKey{Namespace: c.Namespace, Name: c.controlPlane}
}

func (c *Cluster) workersKey() client.ObjectKey {
	return client.ObjectKey{Namespace: c.Namespace, Name: c.workers}
}
