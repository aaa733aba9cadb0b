package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// defaultRuntime is the socket at which a kubelet looks for the container runtime when nobody tells it where that is.
const defaultRuntime = "/run/containerd/containerd.sock"

// Runtime is what the kubelet's configuration says of the container runtime.
type Runtime struct {
	// Socket is the path at which the runtime serves CRI. Empty: the node has no kubelet, or its runtime has another address than
	// a Unix socket.
	Socket string
	// CgroupDriver is "systemd", "cgroupfs" or, if the configuration does not say it, empty.
	CgroupDriver string
}

// FindRuntime returns what the kubelet's configuration says of the container runtime.
func FindRuntime(r host.Root) (Runtime, error) {
	s, ok, err := readSettings(r)
	if err != nil || !ok {
		return Runtime{}, err
	}
	socket := strings.TrimPrefix(cmp.Or(s.ContainerRuntimeEndpoint, defaultRuntime), "unix://")
	if !strings.HasPrefix(socket, "/") {
		socket = ""
	}
	return Runtime{Socket: socket, CgroupDriver: s.CgroupDriver}, nil
}

// Ask asks the kubelet once whether it is well. It reports whether the node has a kubelet that can be asked. One whose health endpoint is
// turned off says no ill of itself: what else tells of it has to do. One that says that it is well starts no pod if the file is missing
// that pods get their name servers from.
func Ask(ctx context.Context, r host.Root) (asked bool, err error) {
	if err := checkResolver(r); err != nil {
		return true, err
	}
	url, why, err := Healthz(r)
	if err != nil || url == "" {
		return why != "", err
	}
	client := &http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}, Timeout: askTimeout}
	return true, ask(ctx, client, url)
}

func checkResolver(r host.Root) error {
	s, ok, err := readSettings(r)
	if err != nil || !ok || !path.IsAbs(s.ResolverConfig) {
		return err
	}
	if _, err := r.Stat(s.ResolverConfig); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("its resolvConf is %s, which is not there, so it can start no pod", s.ResolverConfig)
	}
	return nil
}
