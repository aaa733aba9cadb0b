package v1alpha1

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
)

func TestUpdaterRegistrationIsValidated(t *testing.T) {
	definition := crd(t, "../../config/crd/bases/capi-refit.dev_updaterregistrations.yaml")
	require.Equal(t, apiextensions.ClusterScoped, definition.Spec.Scope)
	example, err := os.ReadFile("../../docs/examples/updater-registration.yaml")
	require.NoError(t, err)
	require.Empty(t, admit(t, definition, string(example)))

	const url = `clientConfig: {url: "https://x.example.com:9443/path", caBundle: Q0E=}`
	for name, test := range map[string]struct{ spec, want string }{
		"a url":                    {`{` + url + `}`, ""},
		"a service":                {`{clientConfig: {service: {namespace: a, name: b}, caBundle: Q0E=}}`, ""},
		"both":                     {`{clientConfig: {url: "https://x", service: {namespace: a, name: b}, caBundle: Q0E=}}`, "either url or service"},
		"neither":                  {`{clientConfig: {caBundle: Q0E=}}`, "either url or service"},
		"without TLS":              {`{clientConfig: {url: "http://x", caBundle: Q0E=}}`, "spec.clientConfig.url"},
		"with a password":          {`{clientConfig: {url: "https://a:b@x", caBundle: Q0E=}}`, "spec.clientConfig.url"},
		"whom to trust is open":    {`{clientConfig: {url: "https://x"}}`, "spec.clientConfig.caBundle"},
		"Ignore replaces":          {`{` + url + `, failurePolicy: Ignore}`, "spec.failurePolicy"},
		"a reboot":                 {`{` + url + `, disturbs: Reboot}`, "spec.disturbs"},
		"longer than a hook":       {`{` + url + `, timeoutSeconds: 30}`, "spec.timeoutSeconds"},
		"a handler that is a path": {`{` + url + `, handlers: {updateMachine: ../x}}`, "spec.handlers.updateMachine"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := admit(t, definition, "{apiVersion: capi-refit.dev/v1alpha1, kind: UpdaterRegistration, metadata: {name: p}, spec: "+test.spec+"}")
			if test.want == "" {
				require.Empty(t, errs)
				return
			}
			require.ErrorContains(t, errs.ToAggregate(), test.want)
		})
	}
}
