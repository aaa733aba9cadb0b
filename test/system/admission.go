package system

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// serveAdmission has the API server ask the replicas about policies, as config/webhook says, behind one address.
func (s *System) serveAdmission(ctx context.Context, backends []string) error {
	b, err := newBalancer(backends)
	if err != nil {
		return err
	}
	s.onStop(b.close)
	s.admission = b.address()
	config, err := s.asks("webhook", "validatingwebhook.yaml")
	if err != nil {
		return err
	}
	if err := s.Client.Create(ctx, config); err != nil {
		return fmt.Errorf("register the admission of policies: %w", err)
	}
	return nil
}

// Guard has the API server ask the replicas about edits in a namespace, as config/components/guard says, until remove is called. Elsewhere it asks
// nobody, so that other scenarios go on.
func (s *System) Guard(ctx context.Context, namespace string) (remove func(context.Context) error, err error) {
	config, err := s.asks("components", "guard", "validatingwebhook.yaml")
	if err != nil {
		return nil, err
	}
	config.Name += "-" + namespace
	for i := range config.Webhooks {
		config.Webhooks[i].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
	}
	if err := s.Client.Create(ctx, config); err != nil {
		return nil, fmt.Errorf("register the guard: %w", err)
	}
	return func(ctx context.Context) error { return s.Client.Delete(ctx, config) }, nil
}

// asks reads a configuration out of config, and has it name the address at which the replicas answer here.
func (s *System) asks(path ...string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	content, err := os.ReadFile(filepath.Join(append([]string{s.options.Source, "config"}, path...)...))
	if err != nil {
		return nil, err
	}
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := yaml.UnmarshalStrict(content, config); err != nil {
		return nil, fmt.Errorf("read what the API server asks: %w", err)
	}
	for i := range config.Webhooks {
		w := &config.Webhooks[i].ClientConfig
		url := "https://" + s.admission + *w.Service.Path
		*w = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: s.bundle}
	}
	return config, nil
}
