package apitest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/capi-refit/refit/internal/managementtest"
)

// ClusterAPI returns Cluster API's CRDs as its releases label them, and two of an infrastructure provider: a kind of machines, and of their templates.
func ClusterAPI(t *testing.T, infra schema.GroupVersionKind) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	require.NoError(t, err)
	dir := strings.TrimSpace(string(out))
	options := envtest.CRDInstallOptions{ErrorIfPathMissing: true}
	for _, part := range []string{"core", "bootstrap/kubeadm", "controlplane/kubeadm"} {
		options.Paths = append(options.Paths, filepath.Join(dir, filepath.FromSlash(part), "config", "crd", "bases"))
	}
	require.NoError(t, envtest.ReadCRDFiles(&options))
	for _, crd := range options.CRDs {
		metav1.SetMetaDataLabel(&crd.ObjectMeta, "cluster.x-k8s.io/v1beta2", "v1beta2")
	}
	for _, kind := range []string{infra.Kind, infra.Kind + "Template"} {
		plural := strings.ToLower(kind) + "s"
		crd := managementtest.CRD(plural, infra)
		crd.Spec.Scope = apiextensionsv1.NamespaceScoped
		crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)}
		keep := true
		crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: infra.Version, Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &keep}},
		}}
		options.CRDs = append(options.CRDs, crd)
	}
	return options.CRDs
}
