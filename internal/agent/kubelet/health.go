package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
)

// ConfigFile is the kubelet's configuration, as kubeadm writes it.
const ConfigFile = "/var/lib/kubelet/config.yaml"

const (
	// defaultHealthzAddress and defaultHealthzPort are those of KubeletConfiguration v1beta1.
	defaultHealthzAddress = "127.0.0.1"
	defaultHealthzPort    = 10248
	// healthLook is how often a kubelet is asked, askTimeout how long one answer may take.
	healthLook = time.Second
	askTimeout = 5 * time.Second
)

// Healthz returns the address at which the kubelet reports whether it is well. It is empty if the kubelet does not say it; why then
// tells the reason, or nothing when the kubelet is not one that kubeadm has set up: what systemd says of it has to do then.
func Healthz(r host.Root) (url, why string, err error) {
	s, ok, err := readSettings(r)
	if err != nil || !ok {
		return "", "", err
	}
	port, address := defaultHealthzPort, cmp.Or(s.HealthzBindAddress, defaultHealthzAddress)
	if s.HealthzPort != nil {
		port = *s.HealthzPort
	}
	if port == 0 {
		return "", "its health endpoint is turned off (healthzPort: 0)", nil
	}
	if ip := net.ParseIP(address); ip != nil && ip.IsUnspecified() {
		address = defaultHealthzAddress
	}
	return "http://" + net.JoinHostPort(address, strconv.Itoa(port)) + "/healthz", "", nil
}

// UnhealthyError says that a kubelet was asked for its health until there was no time left.
type UnhealthyError struct{ said error }

// Error implements error.
func (e *UnhealthyError) Error() string {
	return "the kubelet does not become healthy: " + e.said.Error()
}

// Await waits until the kubelet says that it is well. It gives up when ctx ends; the note says why it was not asked, if so.
func Await(ctx context.Context, h host.Host) (note string, err error) {
	url, why, err := Healthz(h.Root)
	if err != nil {
		return "", err
	}
	if url == "" && why != "" {
		note = "the kubelet was not asked for its health: " + why
	}
	if url == "" {
		return note, nil
	}
	client := &http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}, Timeout: askTimeout}
	var last error
	for {
		said := ask(ctx, client, url)
		if said == nil {
			return "", nil
		}
		if last == nil || ctx.Err() == nil { // that there is no time left is not what is wrong with it
			last = said
		}
		if err := h.Clock.Wait(ctx, healthLook); err != nil {
			return "", &UnhealthyError{last}
		}
	}
}

// ask returns nil if the kubelet is well. What it answers is not repeated.
func ask(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("nothing answers at %s", url)
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}
