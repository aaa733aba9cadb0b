package cli

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// TestTheYAMLOfPagesIsYAML parses each document of each block, which people copy. One of a kind of refit's, or a KubeadmConfig or its
// template, has no field that the kind does not have.
func TestTheYAMLOfPagesIsYAML(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(refitv1.AddToScheme(scheme), bootstrapv1.AddToScheme(scheme)))
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	parsed, decoded := 0, 0
	for _, name := range pages(t) {
		for _, b := range codeBlocks(t, readPage(t, name)) {
			if b.language != "yaml" {
				continue
			}
			for _, document := range documents(t, b.text) {
				var content any
				require.NoError(t, yaml.UnmarshalStrict(document, &content), "%s: line %d", name, b.line)
				parsed++
				if part, ok := content.(map[string]any); ok && part["preKubeadmCommands"] != nil {
					require.NoError(t, yaml.UnmarshalStrict(document, &bootstrapv1.KubeadmConfigSpec{}), "%s: line %d", name, b.line)
				}
				_, _, err := strict.Decode(document, nil, nil)
				if runtime.IsNotRegisteredError(err) || runtime.IsMissingKind(err) || runtime.IsMissingVersion(err) {
					continue // a part of an object, or of somebody else's kind
				}
				require.NoError(t, err, "%s: line %d", name, b.line)
				decoded++
			}
		}
	}
	require.Greater(t, parsed, 20)
	require.Greater(t, decoded, 10)
}

// documents returns those of a block in which there is something.
func documents(t *testing.T, text string) [][]byte {
	t.Helper()
	var all [][]byte
	r := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := r.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if len(bytes.TrimSpace(document)) > 0 {
			all = append(all, document)
		}
	}
}
