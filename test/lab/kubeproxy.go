package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// LoadKubeProxy puts the image of a version's kube-proxy into a machine, as if the machine had pulled it: its pods are on all nodes, and
// get the new image when the control plane has a new version. Where kind's images are used, there is a registry.
func (l *Lab) LoadKubeProxy(ctx context.Context, machine, version string) error {
	if l.machines.images.Layer(version) == "" {
		return nil
	}
	reader, writer := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := l.machines.images.WriteKubeProxy(writer, version)
		_ = writer.CloseWithError(err)
		written <- err
	}()
	_, err := l.machines.engine.Run(ctx, reader, "exec", "--interactive", machine, "ctr", "--namespace", "k8s.io", "images", "import", "--local", "-")
	_ = reader.CloseWithError(errors.New("the machine reads no more")) // the writer is not to wait for it
	if err = errors.Join(err, <-written); err != nil {
		return fmt.Errorf("loading the image of kube-proxy %s into %s: %w", version, machine, err)
	}
	return nil
}
