//go:build e2e

package conformance_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/managementtest"
	"github.com/capi-refit/refit/internal/registered"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/files"
)

// TestReferenceExtensionIsAnUpdater has it be one beside refit's own: an edit of a file, which is refit's, and of the failure domain, which it claims, is made
// in place by both. While it is down nothing is replaced.
func TestReferenceExtensionIsAnUpdater(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	r := startReference(ctx, t)
	extensions := discovered(ctx, t, "https://"+r.Host, r.Bundle)
	rules, err := disruption.AllowPaths([]string{"/etc/demo.conf"})
	require.NoError(t, err)
	own, err := updaters.NewRegistry(files.New(disruption.Rules{Files: rules}))
	require.NoError(t, err)
	engine := handlers.NewEngine(inplace.Always(own))
	request := edited(t)

	alone, err := engine.Explain(ctx, request)
	require.NoError(t, err)
	require.Equal(t, handlers.VerdictReplace, alone.Verdict)
	both, err := engine.With(extensions).Explain(ctx, request)
	require.NoError(t, err)
	require.Equal(t, handlers.VerdictInPlace, both.Verdict)
	by := map[string]string{}
	for _, f := range both.Fields {
		by[f.Path] = f.Updater
	}
	require.Equal(t, map[string]string{"spec.failureDomain": "registered/reference", `spec.files[path="/etc/demo.conf"].content`: "files"}, by)

	remotes, err := extensions.For(ctx, registered.Subject{})
	require.NoError(t, err)
	require.Len(t, remotes, 1)
	for calls := 1; ; calls++ {
		progress, err := remotes[0].Update(ctx, update(t, request))
		require.NoError(t, err)
		if progress.Done {
			require.Greater(t, calls, 1, "it takes its time")
			break
		}
		select {
		case <-ctx.Done():
			require.NoError(t, ctx.Err())
		case <-time.After(progress.RetryAfter):
		}
	}

	require.NoError(t, r.Stop(time.Minute))
	_, err = engine.With(extensions).Explain(ctx, request)
	require.ErrorContains(t, err, "so no machine is replaced")
	require.ErrorContains(t, err, "UpdaterRegistration reference: ")
	_, err = remotes[0].Update(ctx, update(t, request))
	require.ErrorContains(t, err, "UpdaterRegistration reference: ")
}

// discovered has the extension be registered, and waits until its handlers are known.
func discovered(ctx context.Context, t *testing.T, url string, bundle []byte) *registered.Registry {
	t.Helper()
	u := &refitv1.UpdaterRegistration{}
	u.Name, u.UID, u.Generation = "reference", "uid-reference", 1
	u.Spec.ClientConfig = refitv1.UpdaterClientConfig{URL: url, CABundle: bundle}
	u.Spec.TimeoutSeconds, u.Spec.Disturbs = 4, refitv1.UpdaterDisturbsNone
	c := managementtest.New(u)
	extensions := &registered.Registry{Client: c, Live: c}
	d := &registered.Discovery{Client: c, Registry: extensions}
	for {
		_, err := d.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(u)})
		require.NoError(t, err)
		require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(u), u))
		if meta.IsStatusConditionTrue(u.Status.Conditions, refitv1.UpdaterReady) {
			return extensions
		}
		select {
		case <-ctx.Done():
			require.NoError(t, ctx.Err(), meta.FindStatusCondition(u.Status.Conditions, refitv1.UpdaterReady).Message)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// edited is a request that Cluster API has sent, of an edit of a file, in which the failure domain is edited, too.
func edited(t *testing.T) []byte {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("..", "..", "handlers", "testdata", "canupdatemachine-file-content.json"))
	require.NoError(t, err)
	var request map[string]any
	require.NoError(t, json.Unmarshal(body, &request))
	request["desired"].(map[string]any)["machine"].(map[string]any)["spec"].(map[string]any)["failureDomain"] = "two"
	body, err = json.Marshal(request)
	require.NoError(t, err)
	return body
}

// update is the UpdateMachineRequest that follows.
func update(t *testing.T, request []byte) []byte {
	t.Helper()
	var asked map[string]any
	require.NoError(t, json.Unmarshal(request, &asked))
	body, err := json.Marshal(map[string]any{"apiVersion": asked["apiVersion"], "kind": "UpdateMachineRequest", "desired": asked["desired"]})
	require.NoError(t, err)
	return body
}
