package version

import (
	"context"
	"fmt"
	"time"

	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/release"
)

const (
	// busyPatience is how long a plan waits for others of the package manager, which often look at something only. Who plans asks again.
	busyPatience = 15 * time.Second
	// busyPause is how long it takes until they are looked for again.
	busyPause = time.Second
)

// installable is staged for a release that can be installed now. Nobody is drained for one that has to wait: apt-daily downloads for minutes.
func (k *Kind) installable(ctx context.Context, q kind.Question, want string) (staged *release.Release, missing []string, why string, err error) {
	staged, missing, why, err = k.staged(q.Source, want)
	if why != "" || err != nil || len(missing) > 0 || q.UnderWay { // a run waits by itself, and may have the package manager
		return staged, missing, why, err
	}
	why, err = k.busy(ctx, want)
	return staged, nil, why, err
}

// busy returns who has the package manager by which a release is installed, if it does not end soon. Nobody is stopped.
func (k *Kind) busy(ctx context.Context, version string) (why string, err error) {
	for waited := time.Duration(0); ; waited += busyPause {
		r, err := k.releases.Find(version)
		if err != nil || r == nil || r.Busy == "" {
			return "", err
		}
		if waited >= busyPatience {
			return fmt.Sprintf("Kubernetes %s can't be installed yet: %s; nothing is begun before that ends, and it is not stopped; if it goes on, "+
				"see what it does on the node", version, r.Busy), nil
		}
		if err := k.host.Clock.Wait(ctx, busyPause); err != nil {
			return "", err
		}
	}
}
