package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/capi-refit/refit/test/lab"
)

// variable is one of clusterctl's, with its default.
var variable = regexp.MustCompile(`\$\{(\w+):=([^}]*)\}`)

// switchedOn are the variables that docs/install.md has set.
var switchedOn = map[string]bool{"EXP_RUNTIME_SDK": true, "EXP_IN_PLACE_UPDATES": true}

// DeployManagers makes the Deployments of the managers that call extensions, as Cluster API's release has them, with the feature gates that refit takes.
// They have no replicas: the managers run beside, started by the lab. It is for who reads what a Deployment says, as refit check does.
func (m *Management) DeployManagers(ctx context.Context) error {
	source, err := lab.ModuleDir(ctx, lab.CoreManager, "sigs.k8s.io/cluster-api")
	if err != nil {
		return err
	}
	for _, config := range []string{"core/config/default", "controlplane/kubeadm/config/default"} {
		out, err := m.Run(ctx, "", nil, lab.Kubectl, "kustomize", filepath.Join(source, filepath.FromSlash(config)))
		if err != nil {
			return err
		}
		out = variable.ReplaceAllStringFunc(out, func(v string) string {
			found := variable.FindStringSubmatch(v)
			if switchedOn[found[1]] {
				return "true"
			}
			return found[2]
		})
		if err := m.deploy(ctx, out); err != nil {
			return fmt.Errorf("%s: %w", config, err)
		}
	}
	return nil
}

// deploy makes the Deployments of a manifest, and nothing else.
func (m *Management) deploy(ctx context.Context, manifest string) error {
	for documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(manifest)), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := documents.Decode(&o.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if o.GetKind() != "Deployment" {
			continue
		}
		if err := unstructured.SetNestedField(o.Object, int64(0), "spec", "replicas"); err != nil {
			return err
		}
		if err := m.Client.Create(ctx, o); err != nil {
			return err
		}
	}
}
