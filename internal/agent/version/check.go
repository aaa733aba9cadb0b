package version

import (
	"context"
	"fmt"

	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/skew"
)

// inTheWay returns why the node can't be brought to a version now, wherever that comes from.
func (k *Kind) inTheWay(ctx context.Context, s *shown, want string) (why string, err error) {
	if s.kubelet == "" {
		return "the version of the kubelet is not known: the API server does not answer, and kubelet --version does not work on the node", nil
	}
	for _, is := range s.versions() {
		if why := refuse(is, want); why != "" {
			return why, nil
		}
	}
	if s.pods == nil {
		return k.newerThanAPIServer(ctx, want)
	}
	config, err := k.pods.Configuration(ctx)
	if err != nil {
		return "", err
	}
	if err := config.CheckVersion(want); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// refuse returns why what is of one version can't be brought to another in place.
func refuse(is, want string) string {
	from, err := skew.ParseExact(is)
	if err != nil {
		return err.Error()
	}
	to, err := skew.ParseExact(want)
	if err != nil {
		return err.Error()
	}
	if err := skew.Follow(from, to); err != nil {
		return fmt.Sprintf("the node runs Kubernetes %s and can't be brought to %s: %v", is, want, err)
	}
	return ""
}

// newerThanAPIServer reports whether a kubelet would be newer than the API server, which it must never be.
func (k *Kind) newerThanAPIServer(ctx context.Context, want string) (why string, err error) {
	ctx, cancel := context.WithTimeout(ctx, apiPatience)
	defer cancel()
	var serves struct {
		GitVersion string `json:"gitVersion"`
	}
	err = staticpod.Until(ctx, k.host.Clock, func() error {
		c, err := staticpod.Connect(k.host.Root, staticpod.KubeletConfig)
		if err != nil {
			return err
		}
		return c.Get(ctx, "/version", nil, &serves)
	})
	if err != nil {
		return "", fmt.Errorf("the version of the API server is not known: %w", err)
	}
	is, err := skew.Parse(serves.GitVersion)
	if err != nil {
		return "", fmt.Errorf("the version of the API server is not known: %w", err)
	}
	to, err := skew.Parse(want)
	if err != nil {
		return err.Error(), nil
	}
	if is.LessThan(to) {
		return fmt.Sprintf("the API server is of version %s, and a kubelet %s would be newer; have the control plane updated first",
			serves.GitVersion, want), nil
	}
	return "", nil
}
