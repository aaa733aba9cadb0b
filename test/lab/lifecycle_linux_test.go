//go:build e2e

package lab

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
)

// upgradeHooks are the lifecycle hooks of a version upgrade, in the order of the upgrade.
var upgradeHooks = []string{
	"BeforeClusterUpgrade", "BeforeControlPlaneUpgrade", "AfterControlPlaneUpgrade",
	"BeforeWorkersUpgrade", "AfterWorkersUpgrade", "AfterClusterUpgrade",
}

const (
	// heldFor is how long Cluster API is told to wait before it calls a held hook again.
	heldFor = 2 * time.Second

	heldMessage = "not yet"
)

// An upgradeRequest is what Cluster API sends to any of upgradeHooks.
type upgradeRequest struct {
	metav1.TypeMeta `json:",inline"`

	Cluster               clusterv1.Cluster `json:"cluster"`
	FromKubernetesVersion string            `json:"fromKubernetesVersion"`
	ToKubernetesVersion   string            `json:"toKubernetesVersion"`
	KubernetesVersion     string            `json:"kubernetesVersion"`

	ControlPlaneUpgrades []runtimehooksv1.UpgradeStepInfo `json:"controlPlaneUpgrades"`
	WorkersUpgrades      []runtimehooksv1.UpgradeStepInfo `json:"workersUpgrades"`

	at time.Time
}

func (r *upgradeRequest) hook() string { return strings.TrimSuffix(r.Kind, "Request") }

// An upgradeResponse is what Cluster API wants to hear from any of upgradeHooks.
type upgradeResponse struct {
	metav1.TypeMeta `json:",inline"`
	runtimehooksv1.CommonRetryResponse
}

// A gatekeeper is an extension that lets upgrades pass, but for the hooks that it holds. It remembers who asked.
type gatekeeper struct {
	t *testing.T

	mutex    sync.Mutex
	requests []upgradeRequest
	held     map[string]bool
}

// registerGatekeeper starts a gatekeeper, which holds these hooks, and makes it known to the managers.
func registerGatekeeper(ctx context.Context, t *testing.T, lab *Lab, hold ...string) *gatekeeper {
	t.Helper()
	g := &gatekeeper{t: t, held: map[string]bool{}}
	for _, hook := range hold {
		g.held[hook] = true
	}
	server := httptest.NewTLSServer(g)
	t.Cleanup(server.Close)
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, lab.Client.Create(ctx, &runtimev1.ExtensionConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "gatekeeper"},
		Spec: runtimev1.ExtensionConfigSpec{
			ClientConfig:      runtimev1.ClientConfig{URL: server.URL, CABundle: bundle},
			NamespaceSelector: &metav1.LabelSelector{},
		},
	}))
	require.NoError(t, lab.WaitForExtension(ctx, "gatekeeper"))
	return g
}

func (g *gatekeeper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request upgradeRequest
	if !assert.NoError(g.t, json.NewDecoder(r.Body).Decode(&request)) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var response any = discovered()
	if request.hook() != "Discovery" {
		response = g.answer(request)
	}
	assert.NoError(g.t, json.NewEncoder(w).Encode(response))
}

func discovered() *runtimehooksv1.DiscoveryResponse {
	response := &runtimehooksv1.DiscoveryResponse{}
	response.SetGroupVersionKind(runtimehooksv1.GroupVersion.WithKind("DiscoveryResponse"))
	response.Status = runtimehooksv1.ResponseStatusSuccess
	for _, hook := range upgradeHooks {
		response.Handlers = append(response.Handlers, runtimehooksv1.ExtensionHandler{
			Name:        strings.ToLower(hook),
			RequestHook: runtimehooksv1.GroupVersionHook{APIVersion: runtimehooksv1.GroupVersion.String(), Hook: hook},
		})
	}
	return response
}

func (g *gatekeeper) answer(request upgradeRequest) *upgradeResponse {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	request.at = time.Now()
	g.requests = append(g.requests, request)
	response := &upgradeResponse{TypeMeta: request.TypeMeta}
	response.Kind = request.hook() + "Response"
	response.Status = runtimehooksv1.ResponseStatusSuccess
	if g.held[request.hook()] {
		response.Message, response.RetryAfterSeconds = heldMessage, int32(heldFor.Seconds())
	}
	return response
}

// release lets a hook pass from now on.
func (g *gatekeeper) release(hook string) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	delete(g.held, hook)
}

// asked returns the requests of one hook, in their order.
func (g *gatekeeper) asked(hook string) []upgradeRequest {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return slices.DeleteFunc(slices.Clone(g.requests), func(r upgradeRequest) bool { return r.hook() != hook })
}

// order returns the hooks in the order in which each was called first.
func (g *gatekeeper) order() []string {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	var order []string
	for _, request := range g.requests {
		if !slices.Contains(order, request.hook()) {
			order = append(order, request.hook())
		}
	}
	return order
}
