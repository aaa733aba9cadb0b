package v1alpha1

import (
	"testing"

	"github.com/stretchr/testify/require"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

func TestKnownHostsDoNotChange(t *testing.T) {
	definition := crd(t, "../../config/crd/bases/capi-refit.dev_knownhosts.yaml")
	require.Contains(t, definition.Labels, "clusterctl.cluster.x-k8s.io", "clusterctl move takes along what belongs to a Cluster, of CRDs with this label")
	props := definition.Spec.Validation
	if props == nil {
		props = definition.Spec.Versions[0].Schema
	}
	structural, err := structuralschema.NewStructural(props.OpenAPIV3Schema)
	require.NoError(t, err)
	object := func(spec map[string]any, owner string) map[string]any {
		return map[string]any{"apiVersion": "capi-refit.dev/v1alpha1", "kind": "KnownHost", "metadata": map[string]any{
			"name": "m1", "ownerReferences": []any{map[string]any{"uid": owner}},
		}, "spec": spec}
	}
	recorded := map[string]any{"hostKey": "ssh-ed25519 AAAA", "fingerprint": "SHA256:x"}
	for name, tc := range map[string]struct {
		spec map[string]any
		says string
	}{
		"another key":         {map[string]any{"hostKey": "ssh-ed25519 BBBB", "fingerprint": "SHA256:x"}, "delete the KnownHost"},
		"another fingerprint": {map[string]any{"hostKey": "ssh-ed25519 AAAA"}, "delete the KnownHost"},
		"another owner":       {recorded, ""},
	} {
		t.Run(name, func(t *testing.T) {
			errs, _ := cel.NewValidator(structural, true, celconfig.PerCallLimit).
				Validate(t.Context(), nil, structural, object(tc.spec, "b"), object(recorded, "a"), celconfig.RuntimeCELCostBudget)
			if tc.says == "" {
				require.Empty(t, errs)
				return
			}
			require.ErrorContains(t, errs.ToAggregate(), tc.says)
		})
	}
	require.NotEmpty(t, admit(t, definition, `{apiVersion: capi-refit.dev/v1alpha1, kind: KnownHost, metadata: {name: m1}, spec: {}}`))
	require.Empty(t, admit(t, definition, `{apiVersion: capi-refit.dev/v1alpha1, kind: KnownHost, metadata: {name: m1}, spec: {hostKey: ssh-ed25519 AAAA}}`))
}

func TestAddressCIDRsAreValidated(t *testing.T) {
	definition := crd(t, "../../config/crd/bases/capi-refit.dev_nodeaccesses.yaml")
	for cidrs, ok := range map[string]bool{
		`[10.0.0.0/8, 2001:db8::/32, 192.0.2.7/32]`: true,
		`[]`:              true,
		`[10.0.0.1]`:      false,
		`["10.0.0.0/33"]`: false,
		`[everywhere]`:    false,
	} {
		t.Run(cidrs, func(t *testing.T) {
			errs := admit(t, definition, `{apiVersion: capi-refit.dev/v1alpha1, kind: NodeAccess, metadata: {name: all}, spec: {addressCIDRs: `+cidrs+
				`, ssh: {user: refit, privateKeySecretRef: {name: ssh}, hostKeys: {policy: TrustOnFirstUse}}}}`)
			if ok {
				require.Empty(t, errs)
				return
			}
			require.ErrorContains(t, errs.ToAggregate(), "addressCIDRs[0]")
		})
	}
}
