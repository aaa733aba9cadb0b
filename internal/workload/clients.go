package workload

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/capi-refit/refit/internal/kubeconfig"
)

// What bounds the use of one workload cluster's API server.
const (
	timeout   = 10 * time.Second // of a call
	keepAlive = 30 * time.Second
	hangs     = 4 * time.Second // is for how long an API server has answered nothing that is left; calls for a lease have 5
	qps       = 100
	// burst is enough for the updates of a cluster that a policy lets go together, until they have begun. Each makes one request at a time.
	burst = 1000
)

// kept is what is kept of a workload cluster.
type kept struct {
	// from is what it was made from: a version of a Secret, or the config of a connection.
	from any
	// client is nil for a connection, which has its own.
	client    client.Client
	clientset kubernetes.Interface
	http      *http.Client
	ask       AskFunc
	absent    *absent
}

// close lets connections go that nobody uses now. Whoever has the clients still can use them.
func (k *kept) close() { utilnet.CloseIdleConnectionsFor(k.http.Transport) }

// fromKubeconfig makes clients out of a kubeconfig. They ask the API server what it serves when they need to know, and again for
// kinds that they don't know.
func fromKubeconfig(data []byte, userAgent string) (*kept, error) {
	cfg, err := kubeconfig.Parse(data)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent, cfg.Timeout, cfg.QPS, cfg.Burst = userAgent, timeout, qps, burst
	reconnecting(cfg, hangs)
	k, err := newKept(cfg)
	if err != nil {
		return nil, errUnusable // the cause may quote what does not fit
	}
	mapper, err := apiutil.NewDynamicRESTMapper(cfg, k.http)
	if err != nil {
		return nil, errUnusable
	}
	made, err := client.New(cfg, client.Options{HTTPClient: k.http, Scheme: clientgoscheme.Scheme, Mapper: mapper})
	if err != nil {
		return nil, errUnusable
	}
	k.client = k.absent.client(made)
	return k, nil
}

var errUnusable = errors.New("its certificates or keys can't be used")

// fromConnection makes what a connection of the ClusterCache does not have.
func fromConnection(cfg *rest.Config) (*kept, error) {
	k, err := newKept(cfg)
	if err != nil {
		return nil, fmt.Errorf("make a clientset: %w", err)
	}
	return k, nil
}

func newKept(cfg *rest.Config) (*kept, error) {
	made, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	httpClient := *made // it may be everybody's
	httpClient.CheckRedirect = refuseRedirect
	clientset, err := kubernetes.NewForConfigAndClient(cfg, &httpClient)
	if err != nil {
		return nil, err
	}
	return &kept{clientset: clientset, http: &httpClient, ask: asking(cfg), absent: newAbsent(clock.RealClock{})}, nil
}

// refuseRedirect refuses to be sent elsewhere. API servers don't do that; one that a kubeconfig names could have refit fetch what only
// refit's pod can reach.
func refuseRedirect(*http.Request, []*http.Request) error {
	return errors.New("the API server redirects to another address, which refit does not follow")
}
