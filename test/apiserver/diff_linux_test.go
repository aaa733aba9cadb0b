//go:build e2e

package apiserver_test

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/capi-refit/refit/internal/explain"
	"github.com/capi-refit/refit/test/apiserver"
	"github.com/capi-refit/refit/test/apiserver/apitest"
)

// acme is a kind of machines whose templates have a default, in their CRD, and a webhook.
var acme = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1", Kind: "AcmeMachine"}

// edit is what is to be applied: another template, for the workers, and the workers with it.
const edit = `
apiVersion: infrastructure.cluster.x-k8s.io/v1
kind: AcmeMachineTemplate
metadata: {name: larger, namespace: fleet}
spec: {template: {spec: {size: SIZE}}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: md, namespace: fleet}
spec:
  clusterName: c1
  template: {spec: {clusterName: c1, infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: AcmeMachineTemplate, name: larger}}}
`

// TestDiffAsksTheAPIServer has `refit diff` compare with what a real API server makes of files: with the default of a CRD, and what a webhook changes, or
// refuses. Nothing is stored.
func TestDiffAsksTheAPIServer(t *testing.T) {
	crds := apitest.ClusterAPI(t, acme)
	for _, crd := range crds {
		if crd.Spec.Names.Kind == acme.Kind+"Template" {
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties = properties("spec", properties("template", properties("spec", map[string]apiextensionsv1.JSONSchemaProps{
				"disk": {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"10Gi"`)}},
			})))
		}
	}
	s := apitest.Start(t, envtest.CRDInstallOptions{CRDs: crds})
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, admissionregistrationv1.AddToScheme(scheme))
	c, err := client.New(s.Config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	_, err = apiserver.Apply(t.Context(), connect(t, s.Kubeconfig), filepath.Join("..", "..", "config", "crd", "bases"))
	require.NoError(t, err)
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fleet"}}))
	ctx := t.Context()
	objects, err := explain.Read([]byte(guarded))
	require.NoError(t, err)
	for _, o := range objects {
		if o.GetKind() == "ChangeManagementPolicy" {
			continue
		}
		require.EventuallyWithT(t, func(t *assert.CollectT) { // the API server takes a moment to serve a new type
			require.NoError(t, client.IgnoreAlreadyExists(c.Create(ctx, o)))
		}, wait, tick, "%s %s", o.GetKind(), o.GetName())
	}
	askWebhook(t, c)

	dir := t.TempDir()
	program := filepath.Join(dir, "refit")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../cmd/refit").CombinedOutput()
	require.NoError(t, err, string(out))
	kubeconfig := filepath.Join(dir, "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, s.Kubeconfig, 0o600))
	diff := func(size string) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, "diff", "--kubeconfig", kubeconfig, "-n", "fleet", "-o", "json", "-f", "-")
		cmd.Stdin = strings.NewReader(strings.Replace(edit, "SIZE", size, 1))
		out, err := cmd.Output()
		if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
			return string(failed.Stderr), err
		}
		return string(out), err
	}

	var text string
	require.EventuallyWithT(t, func(c *assert.CollectT) { // it takes a moment until the API server asks the webhook
		text, err = diff("large")
		require.NoError(c, err, text)
		require.Contains(c, text, "spec.zone")
	}, wait, tick)
	var f explain.Forecast
	require.NoError(t, json.Unmarshal([]byte(text), &f))
	require.Len(t, f.Owners, 1, text)
	o := f.Owners[0]
	require.Equal(t, explain.Replace, o.Verdict)
	require.Equal(t, "w-1", o.Each[0].Name)
	var fields []string
	for _, field := range o.Fields {
		fields = append(fields, field.Path)
	}
	require.ElementsMatch(t, []string{"spec.size", "spec.zone"}, fields, "spec.disk has its default on both sides, and spec.zone is of the webhook")

	text, err = diff("huge")
	require.Error(t, err)
	require.Contains(t, text, "the API server does not take AcmeMachineTemplate fleet/larger")
	require.Contains(t, text, "nobody has a machine as huge as that")

	larger := &unstructured.Unstructured{}
	larger.SetGroupVersionKind(acme.GroupVersion().WithKind(acme.Kind + "Template"))
	require.True(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "larger"}, larger)), "it was stored")
}

// properties are those of an object that has one, of which properties are known, and keeps what is not.
func properties(name string, of map[string]apiextensionsv1.JSONSchemaProps) map[string]apiextensionsv1.JSONSchemaProps {
	return map[string]apiextensionsv1.JSONSchemaProps{name: {Type: "object", XPreserveUnknownFields: ptr.To(true), Properties: of}}
}

// askWebhook has the API server ask a webhook about new templates. It gives them a zone, and takes none that is huge.
func askWebhook(t *testing.T, c client.Client) {
	t.Helper()
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, PatchType: ptr.To(admissionv1.PatchTypeJSONPatch)}
		review.Response.Patch = []byte(`[{"op": "add", "path": "/spec/template/spec/zone", "value": "a"}]`)
		if strings.Contains(string(review.Request.Object.Raw), `"size":"huge"`) {
			review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "nobody has a machine as huge as that"}}
		}
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(hook.Close)
	require.NoError(t, c.Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "acme"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "templates.acme.example.org",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &hook.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{acme.Group}, APIVersions: []string{acme.Version}, Resources: []string{"acmemachinetemplates"},
				},
			}},
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
		}},
	}))
}
