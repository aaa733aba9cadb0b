package kubeadm

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/capi-refit/refit/test/engine"
)

const (
	kindNode = "kindest/node:"
	// kindLoadBalancer is the one that the Docker provider takes if nobody says otherwise.
	kindLoadBalancer = "kindest/haproxy:v20230606-42a2262b"
)

// Published reports whether a registry gives kind's image for a version.
func Published(ctx context.Context, e engine.Engine, version string) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := e.Run(ctx, nil, "manifest", "inspect", kindNode+version)
	return err == nil
}

// derive builds an image on top of kind's, which the engine pulls if it does not have it.
func (i *Images) derive(ctx context.Context, e engine.Engine, version string) error {
	if e.HasImage(ctx, i.names[version]) {
		return nil
	}
	began := time.Now()
	i.say("making a machine for %s out of %s…", version, kindNode+version)
	work, err := os.MkdirTemp("", "refit-kind-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work) //nolint:errcheck // it is in the way of nobody
	files, err := fs.Sub(recipe, "image")
	if err != nil {
		return err
	}
	if err := os.CopyFS(work, files); err != nil {
		return fmt.Errorf("copying the recipe: %w", err)
	}
	_, err = e.Run(ctx, nil, "build", "--tag", i.names[version], "--build-arg", "BASE="+kindNode+version,
		"--file", filepath.Join(work, "derive.Dockerfile"), work)
	if err != nil {
		return err
	}
	i.say("made a machine for %s in %s", version, time.Since(began).Round(time.Second))
	return nil
}

// adoptLoadBalancer gives kind's load balancer the name that ours would have.
func (i *Images) adoptLoadBalancer(ctx context.Context, e engine.Engine) error {
	if e.HasImage(ctx, i.loadBalancer()) {
		return nil
	}
	if !e.HasImage(ctx, kindLoadBalancer) {
		if _, err := e.Run(ctx, nil, "pull", "--quiet", kindLoadBalancer); err != nil {
			return err
		}
	}
	_, err := e.Run(ctx, nil, "tag", kindLoadBalancer, i.loadBalancer())
	return err
}
