package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/inplace"
)

// upgradesFunc is a fake of policies, which are asked about upgrades only.
type upgradesFunc func(inplace.Upgrade) (inplace.Progress, error)

func (f upgradesFunc) Permit(context.Context, string, bool, func() (inplace.Proposal, error)) error {
	return errors.New("nobody asks")
}

func (f upgradesFunc) Upgrade(_ context.Context, u inplace.Upgrade) (inplace.Progress, error) {
	return f(u)
}

// call calls the hook of a name, and returns its answer as Cluster API reads it.
func call(t *testing.T, policies Policies, scope Scope, name string, body []byte) *runtimehooksv1.BeforeClusterUpgradeResponse {
	t.Helper()
	for _, h := range NewLifecycle(policies, scope).Hooks() {
		if h.Name != name {
			continue
		}
		answer, err := json.Marshal(h.Handle(t.Context(), body))
		require.NoError(t, err)
		var r runtimehooksv1.BeforeClusterUpgradeResponse // all of them are alike
		require.NoError(t, json.Unmarshal(answer, &r))
		return &r
	}
	require.Fail(t, "there is no hook "+name)
	return nil
}

func steps(versions ...string) []runtimehooksv1.UpgradeStepInfo {
	var out []runtimehooksv1.UpgradeStepInfo
	for _, v := range versions {
		out = append(out, runtimehooksv1.UpgradeStepInfo{Version: v})
	}
	return out
}

func kindOf(hook string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: runtimehooksv1.GroupVersion.String(), Kind: hook + "Request"}
}

func lab() clusterv1.Cluster {
	return clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "c1", Labels: map[string]string{"env": "prod"}}}
}

func encoded(t *testing.T, request any) []byte {
	t.Helper()
	body, err := json.Marshal(request)
	require.NoError(t, err)
	return body
}

func beforeCluster(edits ...func(*runtimehooksv1.BeforeClusterUpgradeRequest)) *runtimehooksv1.BeforeClusterUpgradeRequest {
	r := &runtimehooksv1.BeforeClusterUpgradeRequest{TypeMeta: kindOf("BeforeClusterUpgrade"), Cluster: lab(), FromKubernetesVersion: "v1.34.1", ToKubernetesVersion: "v1.35.0"}
	for _, e := range edits {
		e(r)
	}
	return r
}

// TestWhatIsAskedFor sends requests as Cluster API does, and looks for what the policies are asked. It goes through the upgrade
// of a cluster by one version, and by three, of which workers may skip the second.
func TestWhatIsAskedFor(t *testing.T) {
	controlPlane := func(from, to string) *inplace.Upgrade {
		return &inplace.Upgrade{Namespace: "lab", Cluster: "c1", Part: inplace.UpgradedControlPlane, From: from, To: to}
	}
	workers := func(from, to string) *inplace.Upgrade {
		return &inplace.Upgrade{Namespace: "lab", Cluster: "c1", Part: inplace.UpgradedWorkers, From: from, To: to}
	}
	for name, tc := range map[string]struct {
		hook    string
		request any
		want    *inplace.Upgrade // none: nothing more is upgraded
	}{
		"one version: before the cluster": {"before-cluster-upgrade", beforeCluster(), controlPlane("v1.34.1", "v1.35.0")},
		"one version: before the control plane": {"before-control-plane-upgrade", &runtimehooksv1.BeforeControlPlaneUpgradeRequest{
			TypeMeta: kindOf("BeforeControlPlaneUpgrade"), Cluster: lab(), FromKubernetesVersion: "v1.34.1", ToKubernetesVersion: "v1.35.0",
		}, controlPlane("v1.34.1", "v1.35.0")},
		"one version: after the control plane": {"after-control-plane-upgrade", &runtimehooksv1.AfterControlPlaneUpgradeRequest{
			TypeMeta: kindOf("AfterControlPlaneUpgrade"), Cluster: lab(), KubernetesVersion: "v1.35.0", WorkersUpgrades: steps("v1.35.0"),
		}, workers("v1.35.0", "v1.35.0")},
		"one version: before the workers": {"before-workers-upgrade", &runtimehooksv1.BeforeWorkersUpgradeRequest{
			TypeMeta: kindOf("BeforeWorkersUpgrade"), Cluster: lab(), FromKubernetesVersion: "v1.34.1", ToKubernetesVersion: "v1.35.0",
		}, workers("v1.34.1", "v1.35.0")},
		"one version: after the workers": {"after-workers-upgrade", &runtimehooksv1.AfterWorkersUpgradeRequest{
			TypeMeta: kindOf("AfterWorkersUpgrade"), Cluster: lab(), KubernetesVersion: "v1.35.0",
		}, nil},
		"one version: no workers to upgrade": {"after-control-plane-upgrade", &runtimehooksv1.AfterControlPlaneUpgradeRequest{
			TypeMeta: kindOf("AfterControlPlaneUpgrade"), Cluster: lab(), KubernetesVersion: "v1.35.0",
		}, nil},

		"three versions: before the cluster": {"before-cluster-upgrade", beforeCluster(func(r *runtimehooksv1.BeforeClusterUpgradeRequest) {
			r.ToKubernetesVersion, r.ControlPlaneUpgrades, r.WorkersUpgrades = "v1.37.0", steps("v1.35.0", "v1.36.0", "v1.37.0"), steps("v1.35.0", "v1.37.0")
		}), controlPlane("v1.34.1", "v1.35.0")},
		"three versions: before the second of the control plane": {"before-control-plane-upgrade", &runtimehooksv1.BeforeControlPlaneUpgradeRequest{
			TypeMeta: kindOf("BeforeControlPlaneUpgrade"), Cluster: lab(), FromKubernetesVersion: "v1.35.0", ToKubernetesVersion: "v1.36.0",
			ControlPlaneUpgrades: steps("v1.36.0", "v1.37.0"), WorkersUpgrades: steps("v1.37.0"),
		}, controlPlane("v1.35.0", "v1.36.0")},
		"three versions: after the first of the control plane, workers follow": {"after-control-plane-upgrade", &runtimehooksv1.AfterControlPlaneUpgradeRequest{
			TypeMeta: kindOf("AfterControlPlaneUpgrade"), Cluster: lab(), KubernetesVersion: "v1.35.0", ControlPlaneUpgrades: steps("v1.36.0", "v1.37.0"), WorkersUpgrades: steps("v1.35.0", "v1.37.0"),
		}, workers("v1.35.0", "v1.35.0")},
		"three versions: after the second, which workers skip": {"after-control-plane-upgrade", &runtimehooksv1.AfterControlPlaneUpgradeRequest{
			TypeMeta: kindOf("AfterControlPlaneUpgrade"), Cluster: lab(), KubernetesVersion: "v1.36.0", ControlPlaneUpgrades: steps("v1.37.0"), WorkersUpgrades: steps("v1.37.0"),
		}, controlPlane("v1.36.0", "v1.37.0")},
		"three versions: before the workers' first": {"before-workers-upgrade", &runtimehooksv1.BeforeWorkersUpgradeRequest{
			TypeMeta: kindOf("BeforeWorkersUpgrade"), Cluster: lab(), FromKubernetesVersion: "v1.34.1", ToKubernetesVersion: "v1.35.0",
			ControlPlaneUpgrades: steps("v1.36.0", "v1.37.0"), WorkersUpgrades: steps("v1.35.0", "v1.37.0"),
		}, workers("v1.34.1", "v1.35.0")},
		"three versions: after the workers' first": {"after-workers-upgrade", &runtimehooksv1.AfterWorkersUpgradeRequest{
			TypeMeta: kindOf("AfterWorkersUpgrade"), Cluster: lab(), KubernetesVersion: "v1.35.0", ControlPlaneUpgrades: steps("v1.36.0", "v1.37.0"), WorkersUpgrades: steps("v1.37.0"),
		}, controlPlane("v1.35.0", "v1.36.0")},
	} {
		t.Run(name, func(t *testing.T) {
			var asked *inplace.Upgrade
			policies := upgradesFunc(func(u inplace.Upgrade) (inplace.Progress, error) {
				asked = &u
				return inplace.Progress{Message: "not now", RetryAfter: 15 * time.Second}, nil
			})
			r := call(t, policies, "lab", tc.hook, encoded(t, tc.request))
			require.Equal(t, runtimehooksv1.ResponseStatusSuccess, r.Status, r.Message)
			require.Equal(t, tc.want, asked)
			if tc.want == nil {
				require.Zero(t, r.RetryAfterSeconds, "nothing holds back what has nothing to do")
				return
			}
			require.Equal(t, "not now", r.Message)
			require.EqualValues(t, 15, r.RetryAfterSeconds)
		})
	}
}

func TestLifecycleHooks(t *testing.T) {
	catalog := runtimecatalog.New()
	require.NoError(t, runtimehooksv1.AddToCatalog(catalog))
	hooks := NewLifecycle(NoPolicies{}, "").Hooks()
	require.Len(t, hooks, 5)
	for _, h := range hooks {
		gvh, err := catalog.GroupVersionHook(h.Hook)
		require.NoError(t, err)
		body := encoded(t, map[string]any{"kind": gvh.Hook + "Request", "cluster": lab(), "toKubernetesVersion": "v1.36.0"})
		r := h.Handle(t.Context(), body)
		require.Equal(t, runtimehooksv1.ResponseStatusSuccess, r.GetStatus(), r.GetMessage())
		require.Equal(t, runtimehooksv1.GroupVersion.WithKind(gvh.Hook+"Response"), r.GetObjectKind().GroupVersionKind())
		want, err := catalog.NewResponse(gvh)
		require.NoError(t, err)
		require.IsType(t, want, r, "Cluster API reads it as this")
		require.Zero(t, r.(runtimehooksv1.RetryResponseObject).GetRetryAfterSeconds(), "without policies nothing is held back")
	}
}

func TestAnUpgradeIsHeldForSecondsNotForEver(t *testing.T) {
	for name, tc := range map[string]struct {
		progress inplace.Progress
		err      error
		retry    int32
		says     string
	}{
		"it may go":                           {inplace.Progress{Done: true, Message: "go", RetryAfter: time.Minute}, nil, 0, "go"},
		"it is held back":                     {inplace.Progress{Message: "no", RetryAfter: 15 * time.Second}, nil, 15, "no"},
		"for nobody knows how long":           {inplace.Progress{Message: "no"}, nil, 1, "no"},
		"for less than a second":              {inplace.Progress{Message: "no", RetryAfter: time.Nanosecond}, nil, 1, "no"},
		"for parts of a second":               {inplace.Progress{Message: "no", RetryAfter: 1100 * time.Millisecond}, nil, 2, "no"},
		"for less than nothing":               {inplace.Progress{Message: "no", RetryAfter: -time.Hour}, nil, 1, "no"},
		"for a week":                          {inplace.Progress{Message: "no", RetryAfter: 7 * 24 * time.Hour}, nil, 60, "no"},
		"for longer than numbers are":         {inplace.Progress{Message: "no", RetryAfter: math.MaxInt64}, nil, 60, "no"},
		"the policies can't be read":          {inplace.Progress{}, errors.New("secret details"), 5, "the policies of the control plane could not be read; trying again"},
		"they can't be read, but seem to say": {inplace.Progress{Done: true}, errors.New("secret details"), 5, "trying again"},
	} {
		t.Run(name, func(t *testing.T) {
			r := call(t, upgradesFunc(func(inplace.Upgrade) (inplace.Progress, error) { return tc.progress, tc.err }), "", "before-cluster-upgrade", encoded(t, beforeCluster()))
			require.Equal(t, runtimehooksv1.ResponseStatusSuccess, r.Status, "Failure would hide the message")
			require.Equal(t, tc.retry, r.RetryAfterSeconds)
			require.Contains(t, r.Message, tc.says)
			require.NotContains(t, r.Message, "secret")
		})
	}
}

func TestLifecycleRequestsThatAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		scope Scope
		body  []byte
		says  string
	}{
		"nothing":             {"", nil, "can't be read"},
		"no JSON":             {"", []byte("kind: BeforeClusterUpgradeRequest"), "can't be read"},
		"a number":            {"", []byte(`{"kind":"BeforeClusterUpgradeRequest","cluster":1}`), "can't be read"},
		"no kind":             {"", encoded(t, beforeCluster(func(r *runtimehooksv1.BeforeClusterUpgradeRequest) { r.Kind = "" })), `kind`},
		"another hook's kind": {"", encoded(t, beforeCluster(func(r *runtimehooksv1.BeforeClusterUpgradeRequest) { r.Kind = "BeforeWorkersUpgradeRequest" })), `is "BeforeWorkersUpgradeRequest" and should be "BeforeClusterUpgradeRequest"`},
		"no name":             {"", encoded(t, beforeCluster(func(r *runtimehooksv1.BeforeClusterUpgradeRequest) { r.Cluster.Name = "" })), "cluster.metadata"},
		"no namespace":        {"", encoded(t, beforeCluster(func(r *runtimehooksv1.BeforeClusterUpgradeRequest) { r.Cluster.Namespace = "" })), "cluster.metadata"},
		"another namespace":   {"other", encoded(t, beforeCluster()), "other"},
	} {
		t.Run(name, func(t *testing.T) {
			r := call(t, upgradesFunc(func(inplace.Upgrade) (inplace.Progress, error) {
				t.Error("the policies are asked")
				return inplace.Progress{Done: true}, nil
			}), tc.scope, "before-cluster-upgrade", tc.body)
			require.Equal(t, runtimehooksv1.ResponseStatusFailure, r.Status)
			require.Contains(t, r.Message, tc.says)
			require.Zero(t, r.RetryAfterSeconds)
		})
	}
}

func TestErrorsOfThePoliciesNameThePart(t *testing.T) {
	body := encoded(t, map[string]any{"kind": "BeforeWorkersUpgradeRequest", "cluster": lab(), "fromKubernetesVersion": "v1.35.0", "toKubernetesVersion": "v1.36.0"})
	r := call(t, upgradesFunc(func(u inplace.Upgrade) (inplace.Progress, error) {
		return inplace.Progress{}, fmt.Errorf("%s", u.Cluster)
	}), "", "before-workers-upgrade", body)
	require.Contains(t, r.Message, "the policies of the workers could not be read")
}
