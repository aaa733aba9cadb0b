package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"

	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/capi-refit/refit/internal/managementtest"
)

func TestMistakesOfTheExtensionsServiceAreFound(t *testing.T) {
	config := func(f *fleet) *runtimev1.ClientConfig { return &f.extension.Spec.ClientConfig }
	const none = "port 443 of Service refit-system/refit has no endpoint that is ready"
	for name, tc := range map[string]struct {
		spoil func(*fleet)
		says  string // empty: all is well
		do    string
	}{
		"another Service":          {func(f *fleet) { config(f).Service.Name = "refti" }, "it asks Service refit-system/refti, which is not there", "its port hooks"},
		"another namespace":        {func(f *fleet) { config(f).Service.Namespace = "default" }, "it asks Service default/refit, which is not there", "its port hooks"},
		"another port":             {func(f *fleet) { config(f).Service.Port = new(int32(9443)) }, "it asks port 9443 of Service refit-system/refit, which has none of that number", "its port hooks"},
		"a port that is no hooks'": {func(f *fleet) { config(f).Service.Port = new(int32(444)) }, "port 444 of Service refit-system/refit has no endpoint", "targetPort"},
		"no endpoints":             {func(f *fleet) { f.endpoints.SetName("") }, none, "selects them"},
		"none of them is ready":    {func(f *fleet) { f.endpoints.Endpoints = f.endpoints.Endpoints[:1] }, none, "pods are ready"},
		"a targetPort of no pod":   {func(f *fleet) { f.endpoints.Ports = nil }, none, "targetPort"},
		"those of another Service": {func(f *fleet) { f.endpoints.Labels[discoveryv1.LabelServiceName] = "refit-ui" }, none, "selects them"},
		"readiness is not known":   {func(f *fleet) { f.endpoints.Endpoints[1].Conditions.Ready = nil }, "", ""},
		"a port without a name": {func(f *fleet) {
			f.service.Spec.Ports[0].Name = ""
			f.endpoints.Ports[0].Name = nil
		}, "", ""},
		"a URL": {func(f *fleet) {
			config(f).Service = runtimev1.ServiceReference{}
			config(f).URL = "https://refit.example.com"
			f.endpoints.SetName("")
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			tc.spoil(f)
			found := bad(f.run())
			if tc.says == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1, "%+v", found)
			require.Equal(t, "extension", found[0].Check)
			require.Equal(t, Error, found[0].Level)
			require.Equal(t, "ExtensionConfig refit", found[0].Object)
			require.Contains(t, found[0].Message, tc.says)
			require.Contains(t, found[0].Do, tc.do)
		})
	}
}

// TestWhoWritesTheCABundle: what to do about one that is missing, or has ended, goes by the annotation.
func TestWhoWritesTheCABundle(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		do          string
	}{
		"nobody":                       {nil, "no annotation says who writes the caBundle"},
		"Cluster API":                  {map[string]string{runtimev1.InjectCAFromSecretAnnotation: "refit-system/cert"}, "Cluster API copies it out of Secret refit-system/cert"},
		"Cluster API, without a name":  {map[string]string{runtimev1.InjectCAFromSecretAnnotation: "cert"}, `inject-ca-from-secret is "cert": write NAMESPACE/NAME`},
		"cert-manager":                 {map[string]string{"cert-manager.io/inject-ca-from": "refit-system/refit"}, "from Certificate refit-system/refit"},
		"cert-manager, from a Secret":  {map[string]string{"cert-manager.io/inject-ca-from-secret": "refit-system/cert"}, "out of Secret refit-system/cert"},
		"cert-manager, without a name": {map[string]string{"cert-manager.io/inject-ca-from": "refit-system/"}, "write NAMESPACE/NAME"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, bundle := range [][]byte{nil, []byte("no certificate"), authority(t, managementtest.Start.Add(-time.Hour)), authority(t, managementtest.Start.Add(time.Hour))} {
				f := newFleet(t)
				f.extension.Annotations = tc.annotations
				f.extension.Spec.ClientConfig.CABundle = bundle
				found := bad(f.run())
				require.Len(t, found, 1, "%+v", found)
				require.Equal(t, "certificate", found[0].Check)
				require.Contains(t, found[0].Do, tc.do)
			}
		})
	}
}
