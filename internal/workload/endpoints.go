package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// maxEndpoints is how many API servers of a cluster are asked; five are many.
	maxEndpoints = 16
	// endpointTimeout is how long all of them together may take.
	endpointTimeout = 5 * time.Second
	// endpointName is in the certificate of each API server, since pods call it so.
	endpointName = "kubernetes.default.svc"
)

// Endpoint is an API server behind the one address at which a cluster is reached.
type Endpoint struct {
	// Address is where it is, with its port.
	Address string
	// Version is what it says of itself. Empty: it could not be asked.
	Version string
}

// AskFunc returns the version of the API server at an address.
type AskFunc func(ctx context.Context, address string) (version string, err error)

// Endpoints asks each API server that the cluster names in the EndpointSlices of the Service default/kubernetes. They may be at addresses that
// only the cluster's nodes reach: of such a one the address is all that is returned. known is false if the cluster does not let refit read
// the EndpointSlices. Beyond 16 none is asked.
func (c *Cluster) Endpoints(ctx context.Context) (all []Endpoint, known bool, err error) {
	var slices discoveryv1.EndpointSliceList
	of := client.MatchingLabels{discoveryv1.LabelServiceName: "kubernetes"}
	switch err := c.Client.List(ctx, &slices, client.InNamespace(metav1.NamespaceDefault), of); {
	case apierrors.IsForbidden(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("list the EndpointSlices of the API servers: %w", err)
	}
	all = addresses(slices.Items)
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	var asked sync.WaitGroup
	for i := range all[:min(len(all), maxEndpoints)] {
		if c.Ask == nil || !askable(all[i].Address) {
			continue
		}
		asked.Go(func() {
			if v, err := c.Ask(ctx, all[i].Address); err == nil {
				all[i].Version = v
			}
		})
	}
	asked.Wait()
	return all, true, nil
}

// addresses returns those of the EndpointSlices, sorted, each once.
func addresses(list []discoveryv1.EndpointSlice) (all []Endpoint) {
	var found []string
	for i := range list {
		for _, port := range list[i].Ports {
			if port.Port == nil {
				continue
			}
			for _, e := range list[i].Endpoints {
				for _, a := range e.Addresses {
					found = append(found, net.JoinHostPort(a, strconv.Itoa(int(*port.Port))))
				}
			}
		}
	}
	slices.Sort(found)
	for _, a := range slices.Compact(found) {
		all = append(all, Endpoint{Address: a})
	}
	return all
}

// askable reports whether an address can be that of an API server elsewhere. A cluster could name one that is refit's pod itself, or its
// host's.
func askable(address string) bool {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return false
	}
	ip := at.Addr().Unmap()
	return !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsMulticast() && !ip.IsUnspecified()
}

// asking returns what asks API servers of the cluster of a config for their versions. They have to have a certificate of the cluster's, and
// get no credentials: the cluster says where they are.
func asking(cfg *rest.Config) AskFunc {
	cfg = rest.AnonymousClientConfig(cfg)
	if cfg.Insecure {
		return nil // whoever answers could be anybody
	}
	cfg.ServerName, cfg.Dial = endpointName, nil
	return func(ctx context.Context, address string) (string, error) {
		cfg := rest.CopyConfig(cfg)
		cfg.Host = "https://" + address
		made, err := rest.HTTPClientFor(cfg)
		if err != nil {
			return "", errUnusable
		}
		once := *made
		once.CheckRedirect = refuseRedirect
		return ask(ctx, &once, cfg.Host+"/version")
	}
}

func ask(ctx context.Context, c *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := c.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	var info apiversion.Info
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("it answers %s", response.Status)
	}
	if json.NewDecoder(io.LimitReader(response.Body, 1<<16)).Decode(&info) != nil || info.GitVersion == "" {
		return "", errors.New("it does not tell its version")
	}
	return info.GitVersion, nil
}
