package system

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
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// accountName is refit's ServiceAccount, as config/rbac names it.
const accountName = "refit"

// installAccount installs what config/rbac grants to refit, and returns a kubeconfig that has those rights and no others. So
// every scenario also shows that they are enough.
func (s *System) installAccount(ctx context.Context) (string, error) {
	files, err := filepath.Glob(filepath.Join(s.options.Source, "config", "rbac", "*.yaml"))
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if filepath.Base(f) == "kustomization.yaml" {
			continue
		}
		if err := s.create(ctx, f); err != nil {
			return "", fmt.Errorf("install %s: %w", f, err)
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: leaderNamespace, Name: accountName}}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(24 * time.Hour / time.Second))}}
	if err := s.Client.SubResource("token").Create(ctx, account, token); err != nil {
		return "", fmt.Errorf("ask for a token of refit's ServiceAccount: %w", err)
	}
	path := filepath.Join(s.certDir, "kubeconfig")
	return path, clientcmd.WriteToFile(clientcmdapi.Config{
		CurrentContext: accountName,
		Clusters:       map[string]*clientcmdapi.Cluster{accountName: {Server: s.Lab.Config.Host, CertificateAuthorityData: s.Lab.Config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{accountName: {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{accountName: {Cluster: accountName, AuthInfo: accountName}},
	}, path)
}

// create creates the objects of a manifest.
func (s *System) create(ctx context.Context, file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		switch err := documents.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case object.Object == nil:
			continue
		}
		if err := s.Client.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
}
