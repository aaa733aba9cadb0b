package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/test/apiserver"
	"github.com/capi-refit/refit/test/lab"
)

// management is a management cluster without Cluster API's managers.
type management struct {
	client.WithWatch
	server *apiserver.Server
	dir    string
	bundle []byte // with which refit's hooks are verified
}

func newManagement(ctx context.Context, out io.Writer) (*management, error) {
	programs, err := lab.Build(ctx, out, lab.Etcd, lab.KubeAPIServer)
	if err != nil {
		return nil, err
	}
	m := &management{}
	if m.dir, err = os.MkdirTemp("", "refit-benchfleet-"); err != nil {
		return nil, err
	}
	m.server, err = apiserver.Start(ctx, apiserver.Options{Etcd: programs[lab.Etcd], KubeAPIServer: programs[lab.KubeAPIServer], Dir: m.dir})
	if err == nil {
		err = m.install(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, m.stop())
	}
	return m, nil
}

func (m *management) stop() error {
	var err error
	if m.server != nil {
		err = m.server.Stop()
	}
	return errors.Join(err, os.RemoveAll(m.dir))
}

// install installs Cluster API's kinds, as their stored versions are, and refit's.
func (m *management) install(ctx context.Context) error {
	source, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		return fmt.Errorf("find Cluster API's source: %w", err)
	}
	dir := strings.TrimSpace(string(source))
	theirs := envtest.CRDInstallOptions{Paths: []string{
		filepath.Join(dir, "core", "config", "crd", "bases"), filepath.Join(dir, "bootstrap", "kubeadm", "config", "crd", "bases"),
	}}
	if err := envtest.ReadCRDFiles(&theirs); err != nil {
		return err
	}
	for _, crd := range theirs.CRDs {
		crd.Spec.Conversion = nil // nobody converts here
		metav1.SetMetaDataLabel(&crd.ObjectMeta, "cluster.x-k8s.io/v1beta2", "v1beta2")
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Served = crd.Spec.Versions[i].Storage
		}
	}
	for _, crds := range []envtest.CRDInstallOptions{
		{CRDs: theirs.CRDs}, {Paths: []string{filepath.Join("config", "crd", "bases")}, ErrorIfPathMissing: true},
	} {
		crds.MaxTime = 2 * time.Minute
		if _, err := envtest.InstallCRDs(m.server.Config, crds); err != nil {
			return fmt.Errorf("install CRDs: %w", err)
		}
	}
	config := rest.CopyConfig(m.server.Config)
	config.QPS, config.Burst = 5000, 5000
	m.WithWatch, err = client.NewWithWatch(config, client.Options{Scheme: managementtest.NewScheme()})
	return err
}
