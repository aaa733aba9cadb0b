//go:build e2e

package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/test/lab"
	"github.com/capi-refit/refit/test/nodes"
)

// pulledImages are those of the newer version, as a control plane pulls them.
type pulledImages struct {
	releases *lab.Releases
	registry *lab.Registry // nil where there is a real one
}

// pullImages has control planes pull their images from a registry in place of importing an archive of them. Their containerd is told, as
// in an air gap, that this registry is in the place of registry.k8s.io. Where kind's images are used they have the real one.
func (u *suite) pullImages(
	ctx context.Context, t *testing.T, releases *lab.Releases, source *refitv1.KubernetesSource, machines []string,
) pulledImages {
	t.Helper()
	if len(releases.ArchiveURLs()) == 0 {
		return pulledImages{releases: releases}
	}
	registry, err := u.Lab.Registry(ctx, newerVersion)
	require.NoError(t, err)
	for _, name := range machines {
		for path, content := range registry.HostsFiles() {
			require.NoError(t, u.Fleet.Node(name).WriteFile(ctx, path, nodes.File{Content: content}))
		}
	}
	u.changeSource(ctx, t, source, func(s *refitv1.KubernetesSourceSpec) { s.Images = refitv1.ImagesSource{Pull: true} })
	return pulledImages{releases, registry}
}

// withhold has the images not be had, until it is called again with false. A real registry can't be told to, so there it is a program.
func (i pulledImages) withhold(t *testing.T, withheld bool) {
	t.Helper()
	if i.registry == nil {
		require.NoError(t, i.releases.Withhold(newerVersion, "kubelet", withheld))
		return
	}
	i.registry.Withhold(withheld)
}

// requirePulled demands that each machine has had the images from the registry, and in no other way.
func (i pulledImages) requirePulled(t *testing.T, machines []string) {
	t.Helper()
	if i.registry == nil {
		return
	}
	for _, component := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		times, err := i.registry.Served("registry.k8s.io/" + component + ":" + newerVersion)
		require.NoError(t, err)
		require.GreaterOrEqual(t, times, len(machines), "%s was not pulled by each of %v", component, machines)
	}
	archives, err := i.releases.Served(newerVersion, lab.ReleasedImages)
	require.NoError(t, err)
	require.Zero(t, archives, "an archive of images was fetched, too")
}
