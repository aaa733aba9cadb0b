package system

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

// serveAdmission has the API server ask the replicas about policies, as config/webhook says, behind one address.
func (s *System) serveAdmission(ctx context.Context, backends []string) error {
	b, err := newBalancer(backends)
	if err != nil {
		return err
	}
	s.onStop(b.close)
	content, err := os.ReadFile(filepath.Join(s.options.Source, "config", "webhook", "validatingwebhook.yaml"))
	if err != nil {
		return err
	}
	var config admissionregistrationv1.ValidatingWebhookConfiguration
	if err := yaml.UnmarshalStrict(content, &config); err != nil {
		return fmt.Errorf("read the admission of policies: %w", err)
	}
	for i := range config.Webhooks {
		w := &config.Webhooks[i].ClientConfig
		url := "https://" + b.address() + *w.Service.Path
		*w = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: s.bundle}
	}
	if err := s.Client.Create(ctx, &config); err != nil {
		return fmt.Errorf("register the admission of policies: %w", err)
	}
	return nil
}
