package lab

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

// contractLabel tells Cluster API which version of a provider's type follows which version of its contract.
const contractLabel, contractVersion = "cluster.x-k8s.io/v1beta2", "v1beta2"

// readCRDs reads the CRDs in a manager's config directory, labelled as its release has them.
func readCRDs(configDir string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	options := envtest.CRDInstallOptions{
		Paths:              []string{filepath.Join(configDir, "crd", "bases")},
		ErrorIfPathMissing: true,
	}
	if err := envtest.ReadCRDFiles(&options); err != nil {
		return nil, fmt.Errorf("reading CRDs: %w", err)
	}
	for _, crd := range options.CRDs {
		metav1.SetMetaDataLabel(&crd.ObjectMeta, contractLabel, contractVersion)
	}
	return options.CRDs, nil
}

// readWebhooks reads the webhook configurations in a manager's config directory. Before kustomize has been at them all
// managers give theirs the same name, so that the last one installed would replace the others: hence prefix.
func readWebhooks(configDir, prefix string) (*envtest.WebhookInstallOptions, error) {
	content, err := os.ReadFile(filepath.Join(configDir, "webhook", "manifests.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading webhooks: %w", err)
	}
	documents, err := splitYAML(content)
	if err != nil {
		return nil, fmt.Errorf("reading webhooks: %w", err)
	}
	webhooks := &envtest.WebhookInstallOptions{}
	for _, document := range documents {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(document, &meta); err != nil {
			return nil, fmt.Errorf("reading webhooks: %w", err)
		}
		switch meta.Kind {
		case "MutatingWebhookConfiguration":
			var config admissionv1.MutatingWebhookConfiguration
			err = yaml.Unmarshal(document, &config)
			config.Name = prefix + config.Name
			webhooks.MutatingWebhooks = append(webhooks.MutatingWebhooks, &config)
		case "ValidatingWebhookConfiguration":
			var config admissionv1.ValidatingWebhookConfiguration
			err = yaml.Unmarshal(document, &config)
			config.Name = prefix + config.Name
			webhooks.ValidatingWebhooks = append(webhooks.ValidatingWebhooks, &config)
		}
		if err != nil {
			return nil, fmt.Errorf("reading webhooks: %s: %w", meta.Kind, err)
		}
	}
	return webhooks, nil
}

// splitYAML returns the documents in content that say anything.
func splitYAML(content []byte) ([][]byte, error) {
	var documents [][]byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, err
		}
		var object map[string]any
		if err := yaml.Unmarshal(document, &object); err != nil {
			return nil, err
		}
		if len(object) > 0 {
			documents = append(documents, document)
		}
	}
}
