package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/capi-refit/refit/test/process"
)

const (
	loopback = "127.0.0.1"

	// debugPort is where the infrastructure manager always listens, and so what keeps two labs from sharing a host.
	debugPort = 19000
)

// A manager is one of Cluster API's controller managers, as its release would install it.
type manager struct {
	program Program
	prefix  string // of the names of its objects, as in its release
	module  string // where its manifests are
	config  string // the directory in module that holds them
	gates   string
}

var managers = []manager{
	{CoreManager, "capi-", "sigs.k8s.io/cluster-api", "core/config",
		"RuntimeSDK=true,InPlaceUpdates=true,ClusterTopology=true"},
	{BootstrapManager, "capi-kubeadm-bootstrap-", "sigs.k8s.io/cluster-api", "bootstrap/kubeadm/config",
		""},
	{ControlPlaneManager, "capi-kubeadm-control-plane-", "sigs.k8s.io/cluster-api", "controlplane/kubeadm/config",
		"InPlaceUpdates=true,ClusterTopology=true"},
	{InfraManager, "capd-", "sigs.k8s.io/cluster-api/test", "infrastructure/docker/config",
		"ClusterTopology=true"},
}

func (m manager) namespace() string { return m.prefix + "system" }

// ports are the loopback ports of one manager.
type ports struct{ webhook, health, diagnostics int }

// args are the command-line arguments of m. Its webhook server can't be told to listen on loopback only.
func (m manager) args(kubeconfig, certDir string, p ports) []string {
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--webhook-port=" + strconv.Itoa(p.webhook),
		"--webhook-cert-dir=" + certDir,
		"--health-addr=" + loopbackAddress(p.health),
		"--diagnostics-address=" + loopbackAddress(p.diagnostics),
		"--insecure-diagnostics=true",
	}
	if m.gates != "" {
		args = append(args, "--feature-gates="+m.gates)
	}
	return args
}

// env is the user's environment with what a Pod's would say. The user's own cluster is kept out of it.
func (m manager) env() []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "KUBECONFIG=") {
			env = append(env, entry)
		}
	}
	return append(env, "POD_IP="+loopback, "POD_NAMESPACE="+m.namespace())
}

func loopbackAddress(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// FreePorts returns n different ports of the loopback address that were free a moment ago.
func FreePorts(n int) ([]int, error) {
	var free []int
	for range n {
		listener, err := net.Listen("tcp", loopbackAddress(0))
		if err != nil {
			return nil, fmt.Errorf("looking for free ports: %w", err)
		}
		// Only closed on return, so that no port is found twice.
		defer listener.Close() //nolint:errcheck // nobody connected
		free = append(free, listener.Addr().(*net.TCPAddr).Port)
	}
	return free, nil
}

// checkDebugPort reports early what the infrastructure manager would die of.
func checkDebugPort() error {
	listener, err := net.Listen("tcp", ":"+strconv.Itoa(debugPort))
	if err != nil {
		return fmt.Errorf("the infrastructure manager needs port %d: %w", debugPort, err)
	}
	return listener.Close()
}

// startManager starts m, whose webhooks' certificates are in certDir.
func (l *Lab) startManager(m manager, certDir string, p ports) (*process.Process, error) {
	args := append(m.args(l.Kubeconfig, certDir, p), l.options.ManagerArgs[m.program]...)
	log := filepath.Join(l.LogDir, string(m.program)+".log")
	env := append(m.env(), l.options.Env...)
	if m.program == InfraManager {
		env = append(env, l.Engine().Env()...)
	}
	return l.launcher.Start(string(m.program), log, l.Binaries[m.program], args, env)
}

// waitHealthy waits until the manager at port says that it is ready and healthy, or p ends.
func waitHealthy(ctx context.Context, p *process.Process, port int) error {
	client := &http.Client{Timeout: 2 * time.Second}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		select {
		case <-p.Done():
			return false, p.Died()
		default:
		}
		return isOK(ctx, client, port, "/readyz") && isOK(ctx, client, port, "/healthz"), nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s is not healthy after %s; its log, %s, ends with:\n%s", p.Name, startTimeout, p.Log, process.Tail(p.Log, 15))
	}
	return err
}

func isOK(ctx context.Context, client *http.Client, port int, path string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+loopbackAddress(port)+path, nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close() //nolint:errcheck // only the status counts
	return response.StatusCode == http.StatusOK
}
