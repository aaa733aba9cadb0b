package lab

import (
	"context"
	"sync"
)

// wanted is a program that is about to be built, unless it is in the cache.
type wanted struct {
	program Program
	source  source
}

// ahead downloads the modules of programs while others before them are built: the one takes the network, and the other the CPU. What can't
// be had is for the build to tell. The function that it returns ends that.
func ahead(ctx context.Context, programs []wanted) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for _, w := range programs {
			if ctx.Err() != nil {
				return
			}
			dir, err := moduleDir(ctx, w.source.module)
			if err != nil {
				continue
			}
			if path, err := cachePath(dir, w.program, w.source); err == nil && !isFile(path) {
				_, _ = goOutput(ctx, dir, "list", "-deps", "-tags", w.source.tags, w.source.pkg)
			}
		}
	})
	return func() { cancel(); done.Wait() }
}
