//go:build e2e

package install

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/capi-refit/refit/test/lab"
)

// finding is what refit check -o json says about one thing.
type finding struct{ Check, Level, Object, Message string }

// plant makes a mistake, and returns what takes it back.
type plant func(context.Context, *testing.T) (undo func())

// mistake is one, and what refit check is to say about it.
type mistake struct {
	// plant is nil for what the set-up has anyway.
	plant              plant
	check, level, says string
}

// mistakes are those that are planted, at least one for each of refit check's checks.
func (i *installation) mistakes() map[string]mistake {
	const (
		inject = "/metadata/annotations/runtime.cluster.x-k8s.io~1inject-ca-from-secret"
		surge  = "/spec/rollout/strategy/rollingUpdate/maxSurge"
	)
	fleet, name := i.cluster.Namespace, i.cluster.Name
	nowhere := base64.StdEncoding.EncodeToString([]byte(kubeconfigOfNobody))
	return map[string]mistake{
		"a kind of another version": {
			i.patched(definition, "", "knownhosts.capi-refit.dev", `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/description","value":"another"}]`),
			"definitions", "Warning", "not the one of this version"},
		"a feature gate is off":        {i.switchOff, "feature-gates", "Error", "InPlaceUpdates is off"},
		"a manager is scaled to 0":     {nil, "managers", "Error", "scaled to 0"},
		"a manager has no pod":         {i.patched(deployment, "capi-system", "capi-controller-manager", `[{"op":"replace","path":"/spec/replicas","value":1}]`), "managers", "Error", "none of its pods"},
		"another authority":            {i.changeAuthority, "extension", "Error", "x509"},
		"no authority":                 {i.patched(extensionConfig, "", "refit", `[{"op":"remove","path":"`+inject+`"},{"op":"replace","path":"/spec/clientConfig/caBundle","value":"bm9uZQ=="}]`), "certificate", "Error", "no certificate of an authority"},
		"an extension at no Service":   {i.patched(extensionConfig, "", "refit", `[{"op":"replace","path":"/spec/clientConfig/service/name","value":"nobody"}]`), "extension", "Error", "refit-system/nobody, which is not there"},
		"no endpoint":                  {nil, "extension", "Error", "no endpoint that is ready"}, // nobody makes EndpointSlices here: Services stands for them
		"no label":                     {i.unlabel, "extension-namespace", "Warning", "no ExtensionConfig is for the namespace"},
		"policies at no Service":       {i.patched(webhook, "", "refit", `[{"op":"replace","path":"/webhooks/0/clientConfig/service/name","value":"nobody"}]`), "admission", "Error", "refit-system/nobody, which is not there"},
		"no question about edits":      {i.patched(webhook, "", "refit", `[{"op":"replace","path":"/webhooks/0/rules/0/operations","value":["CREATE"]}]`), "admission", "Warning", "(UPDATE)"},
		"a policy that never opens":    {i.closeForEver, "policies", "Warning", "never opens"},
		"a guard that is not there":    {i.askForGuard, "guard", "Warning", "no guard is installed"},
		"a guard without --guard":      {i.guard(func(*admissionregistrationv1.ServiceReference) {}), "guard", "Warning", "it has no --guard"},
		"a guard at no Service":        {i.guard(func(s *admissionregistrationv1.ServiceReference) { s.Name = "nobody" }), "guard", "Error", "refit-system/nobody, which is not there"},
		"one replica":                  {i.patched(deployment, namespace, "refit", `[{"op":"replace","path":"/spec/replicas","value":1}]`), "refit", "Warning", "one replica"},
		"anybody may call":             {nil, "callers", "Warning", "anybody who reaches the port"},
		"nobody leads":                 {i.abandonLease, "leader", "Error", "nobody leads"},
		"no NodeAccess":                {nil, "node-access", "Error", "have no NodeAccess"},
		"no Cluster":                   {i.elsewhere, "clusters", "Warning", "no such Clusters"},
		"a paused Cluster":             {i.paused(), "cluster", "Warning", "it is paused"},
		"a control plane of one":       {nil, "control-plane", "Warning", "it has 1 machines"},
		"a control plane that surges":  {both(i.paused(), i.patched(controlPlane, fleet, i.controlPlane, `[{"op":"replace","path":"/spec/replicas","value":3},{"op":"add","path":"`+surge+`","value":1}]`)), "control-plane", "Warning", "its maxSurge is not 0"},
		"OnDelete":                     {i.patched(machineDeployment, fleet, i.workers, `[{"op":"replace","path":"/spec/rollout/strategy","value":{"type":"OnDelete"}}]`), "machine-deployment", "Warning", "OnDelete"},
		"workers that surge":           {both(i.paused(), i.patched(machineDeployment, fleet, i.workers, `[{"op":"add","path":"/spec/rollout/strategy/rollingUpdate/maxUnavailable","value":0},{"op":"add","path":"`+surge+`","value":1}]`)), "machine-deployment", "Warning", "its maxUnavailable is 0"},
		"a quick health check":         {i.healthCheck(`{"unhealthyNodeConditions":[{"type":"Ready","status":"Unknown","timeoutSeconds":60}]}`), "health-check", "Warning", "1m0s after its condition Ready is Unknown"},
		"a health check of new nodes":  {i.healthCheck(`{"nodeStartupTimeoutSeconds":60}`), "health-check", "Warning", "whose node is not there after 60s"},
		"no rights in the workload":    {i.takeRights, "workload", "Error", "does not allow: "},
		"a key that no node knows":     {i.node(anotherKey), "node", "Error", "not authorized"},
		"another host key":             {i.node(anotherHostKey), "node", "Error", "host key of"},
		"no sudo":                      {i.node(noSudo), "node", "Error", "a password is required"},
		"a directory that is open":     {i.node(openDirectory), "node", "Error", "must belong to root"},
		"a workload that is not there": {i.patched(secret, fleet, name+"-refit-kubeconfig", `[{"op":"replace","path":"/data/value","value":"`+nowhere+`"}]`), "workload", "Warning", "does not answer from here"},
	}
}

// findsMistakes plants mistakes, one after the other, where refit is installed, and requires that refit check names each, and that what it names in the
// end is what the set-up has.
func (i *installation) findsMistakes(ctx context.Context, t *testing.T) {
	require.NoError(t, i.DeployManagers(ctx))
	i.findParts(ctx, t)
	mistakes := i.mistakes()
	for _, name := range slices.Sorted(maps.Keys(mistakes)) {
		m := mistakes[name]
		t.Run(name, func(t *testing.T) {
			if m.plant != nil {
				defer m.plant(ctx, t)()
			}
			var said string
			err := poll(ctx, func(ctx context.Context) bool {
				said = i.problems(ctx)
				return slices.ContainsFunc(findings(t, said), m.isFound)
			})
			require.NoError(t, err, "it does not say %q about %s: %s", m.says, m.check, said)
		})
	}
	require.NoError(t, i.Lab.WaitForExtension(ctx, "refit"))
	var left []finding
	err := poll(ctx, func(ctx context.Context) bool {
		all := findings(t, i.problems(ctx))
		if len(all) == 0 { // it was not asked to the end: some are there always
			return false
		}
		left = slices.DeleteFunc(all, func(f finding) bool {
			for _, m := range mistakes {
				if m.plant == nil && m.isFound(f) {
					return true
				}
			}
			return false
		})
		return len(left) == 0
	})
	require.NoError(t, err, "all was mended, and it says: %+v", left)
}

// TestEachCheckHasAMistake compares the mistakes with the checks that docs/install.md lists.
func TestEachCheckHasAMistake(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "install.md"))
	require.NoError(t, err)
	_, list, _ := strings.Cut(string(page), "\n| check | what it finds |\n|---|---|\n")
	list, _, _ = strings.Cut(list, "\n\n")
	var listed, tried []string
	for row := range strings.Lines(list) {
		for _, name := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			listed = append(listed, name[1])
		}
	}
	for _, m := range (&installation{cluster: &lab.Cluster{}}).mistakes() {
		if !slices.Contains(tried, m.check) && m.check != "clusters" { // which is that there is nothing to look at
			tried = append(tried, m.check)
		}
	}
	require.ElementsMatch(t, listed, tried)
}

// isFound reports whether a finding is of the mistake.
func (m mistake) isFound(f finding) bool {
	return f.Check == m.check && f.Level == m.level && strings.Contains(f.Message, m.says)
}

// problems returns what refit check says.
func (i *installation) problems(ctx context.Context) string {
	said, _ := i.Refit(ctx, "check", "--problems", "-o", "json", "-n", i.asked, "--nodes", i.logins) // its code says that there are problems
	return said
}

func findings(t *testing.T, said string) []finding {
	t.Helper()
	var all []finding
	if begin := strings.IndexAny(said, "[{"); begin >= 0 {
		_ = json.NewDecoder(strings.NewReader(said[begin:])).Decode(&all) // it is asked again
	}
	return all
}
