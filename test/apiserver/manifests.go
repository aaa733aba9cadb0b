package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldOwner owns what Apply applies.
const fieldOwner = client.FieldOwner("refit-lab")

// tokenLifetime is longer than any test or lab lives.
const tokenLifetime = 24 * time.Hour

// Apply applies the objects in the YAML files of a directory, except for what only kustomize reads, in the order of the files'
// names, and returns them. Namespaces that they need are made. A directory that is not there has no objects. Apply can be repeated.
func Apply(ctx context.Context, c client.Client, dir string) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("looking for manifests in %s: %w", dir, err)
	}
	var applied []*unstructured.Unstructured
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		objects, err := read(file)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		for _, object := range objects {
			if err := apply(ctx, c, object); err != nil {
				return nil, fmt.Errorf("applying %s: %s %s: %w", file, object.GetKind(), object.GetName(), err)
			}
		}
		applied = append(applied, objects...)
	}
	return applied, nil
}

// read returns the objects of a manifest.
func read(file string) ([]*unstructured.Unstructured, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		switch err := documents.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case object.Object != nil:
			objects = append(objects, object)
		}
	}
}

func apply(ctx context.Context, c client.Client, object *unstructured.Unstructured) error {
	if namespace := object.GetNamespace(); namespace != "" {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if err := c.Create(ctx, n); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("making Namespace %s: %w", namespace, err)
		}
	}
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), fieldOwner, client.ForceOwnership)
}

// AccountKubeconfig returns a kubeconfig with the rights of a ServiceAccount, for the API server that admin reaches. Its token
// is good for a day.
func AccountKubeconfig(ctx context.Context, admin *rest.Config, account client.ObjectKey) ([]byte, error) {
	c, err := client.New(admin, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(tokenLifetime / time.Second)),
	}}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name}}
	if err := c.SubResource("token").Create(ctx, sa, token); err != nil {
		return nil, fmt.Errorf("asking for a token of ServiceAccount %s: %w", account, err)
	}
	name := account.Name
	return clientcmd.Write(clientcmdapi.Config{
		CurrentContext: name,
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: admin.Host, CertificateAuthorityData: admin.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
	})
}
