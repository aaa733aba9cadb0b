//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// The kinds of Metal3's infrastructure provider.
const (
	metalMachine  = "Metal3Machine"
	metalTemplate = metalMachine + "Template"
)

var metalVersion = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2"}

// metal3 stands in for Metal3's infrastructure provider, as far as Cluster API and refit see it: there are no servers. It has the
// provider's kinds, and says of each machine that has bootstrap data that it is provisioned and has joined the cluster. As with the
// genuine one, no webhook is against a change of the image.
type metal3 struct {
	management client.Client
	// nodes is the in-memory provider's API server, which is where Cluster API looks for Nodes.
	nodes     client.Client
	namespace string
	// like is the Node that others are made like.
	like corev1.Node
}

// startMetal3 installs the stand-in's kinds and provisions machines until the test ends.
func (u *suite) startMetal3(ctx context.Context, t *testing.T) *metal3 {
	t.Helper()
	m := &metal3{management: u.Client, namespace: u.Cluster.Namespace}
	for _, kind := range []string{metalMachine, metalTemplate} {
		require.NoError(t, client.IgnoreAlreadyExists(u.Client.Create(ctx, metalCRD(kind))))
		require.NoError(t, poll(ctx, 200*time.Millisecond, func(ctx context.Context) (bool, error) {
			_, err := m.list(ctx, kind)
			return err == nil, nil
		}), "there are no %ss", kind)
	}
	var secret corev1.Secret
	require.NoError(t, u.Client.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: u.Cluster.Name + "-kubeconfig"}, &secret))
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	require.NoError(t, err)
	m.nodes, err = client.New(config, client.Options{Scheme: u.Client.Scheme()})
	require.NoError(t, err)
	require.NoError(t, m.nodes.Get(ctx, client.ObjectKey{Name: u.nodeOf(ctx, t, u.workers(ctx, t)[0])}, &m.like))

	provisioning, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	var last error
	done.Go(func() {
		for provisioning.Err() == nil {
			if err := m.provisionAll(provisioning); err != nil && provisioning.Err() == nil {
				last = err
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	t.Cleanup(func() {
		stop()
		done.Wait()
		if last != nil {
			t.Logf("the stand-in for Metal3 could not provision at times, last because: %v", last)
		}
	})
	return m
}

// metalCRD is a kind of Metal3's, with any spec and status.
func metalCRD(kind string) *apiextensionsv1.CustomResourceDefinition {
	plural := strings.ToLower(kind) + "s"
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name: plural + "." + metalVersion.Group,
			// By this Cluster API knows which version follows which version of its contract.
			Labels: map[string]string{"cluster.x-k8s.io/v1beta2": metalVersion.Version},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: metalVersion.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List", Categories: []string{"cluster-api"},
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: metalVersion.Version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": anything, "status": anything},
				}},
			}},
		},
	}
}

func (m *metal3) list(ctx context.Context, kind string) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(metalVersion.WithKind(kind + "List"))
	err := m.management.List(ctx, list, client.InNamespace(m.namespace))
	return list.Items, err
}

// template creates a template of machines with an image.
func (m *metal3) template(ctx context.Context, t *testing.T, name, image string) {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"image": map[string]any{"url": image, "checksum": image + ".sha256sum", "checksumType": "sha256", "diskFormat": "qcow2"},
	}}}}}
	object.SetGroupVersionKind(metalVersion.WithKind(metalTemplate))
	object.SetNamespace(m.namespace)
	object.SetName(name)
	require.NoError(t, m.management.Create(ctx, object))
}

// images are the images that the machines name, by name.
func (m *metal3) images(ctx context.Context) (map[string]string, error) {
	machines, err := m.list(ctx, metalMachine)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, machine := range machines {
		if out[machine.GetName()], _, err = unstructured.NestedString(machine.Object, "spec", "image", "url"); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (m *metal3) provisionAll(ctx context.Context) error {
	machines, err := m.list(ctx, metalMachine)
	for i := range machines {
		if provisioned, _, _ := unstructured.NestedBool(machines[i].Object, "status", "initialization", "provisioned"); provisioned {
			continue
		}
		if err == nil {
			err = m.provision(ctx, &machines[i])
		}
	}
	return err
}

// provision says that a machine is provisioned, and has it join the cluster.
func (m *metal3) provision(ctx context.Context, infra *unstructured.Unstructured) error {
	var machine clusterv1.Machine
	for _, owner := range infra.GetOwnerReferences() {
		if owner.Kind != "Machine" {
			continue
		}
		if err := m.management.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: owner.Name}, &machine); err != nil {
			return err
		}
	}
	if machine.Spec.Bootstrap.DataSecretName == nil {
		return nil // not yet
	}
	id := fmt.Sprintf("metal3://%s/%s", m.namespace, machine.Name)
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: machine.Name, Labels: map[string]string{corev1.LabelHostname: machine.Name}},
		Spec:       corev1.NodeSpec{ProviderID: id}, Status: *m.like.Status.DeepCopy(),
	}
	if err := client.IgnoreAlreadyExists(m.nodes.Create(ctx, n)); err != nil {
		return err
	}
	before := infra.DeepCopy()
	if err := unstructured.SetNestedField(infra.Object, id, "spec", "providerID"); err != nil {
		return err
	}
	if err := m.management.Patch(ctx, infra, client.MergeFrom(before)); err != nil {
		return err
	}
	before = infra.DeepCopy()
	if err := unstructured.SetNestedField(infra.Object, true, "status", "initialization", "provisioned"); err != nil {
		return err
	}
	return m.management.Status().Patch(ctx, infra, client.MergeFrom(before))
}
