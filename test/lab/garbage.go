package lab

import (
	"context"
	"path/filepath"
	"strings"
	"sync"

	"github.com/capi-refit/refit/test/process"
)

// CollectGarbage has the management cluster delete what depends on objects that are deleted, as the clusters that people have do, by
// Kubernetes' own controller. It goes on until end is called.
func (l *Lab) CollectGarbage(ctx context.Context) (end func() error, err error) {
	return l.RunControllers(ctx, "garbage-collector-controller")
}

// RunControllers runs some of Kubernetes' own controllers in the management cluster, which has none by itself, until end is called. The names are
// those of kube-controller-manager's --controllers.
func (l *Lab) RunControllers(ctx context.Context, names ...string) (end func() error, err error) {
	path, err := binary(ctx, l.options.Progress, KubeControllerManager)
	if err != nil {
		return nil, err
	}
	err = l.unlessStopping(func() error {
		p, err := l.launcher.Start(string(KubeControllerManager), filepath.Join(l.LogDir, string(KubeControllerManager)+".log"), path, []string{
			"--kubeconfig=" + l.Kubeconfig, "--controllers=" + strings.Join(names, ","), "--leader-elect=false",
			"--secure-port=0", "--concurrent-gc-syncs=2",
		}, managers[0].env())
		if err != nil {
			return err
		}
		end = sync.OnceValue(func() error { return process.StopAll([]*process.Process{p}, stopGrace) })
		l.onStop(end)
		return nil
	})
	return end, err
}
