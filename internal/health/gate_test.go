package health

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// errorRatio is a gate that asks at a URL, as edits have it.
func errorRatio(url string, edits ...func(*refitv1.HealthGate)) refitv1.HealthGate {
	g := refitv1.HealthGate{Name: "errors", Prometheus: &refitv1.PrometheusGate{
		URL: url, Query: "error_ratio", MustBe: refitv1.Comparison{Operator: refitv1.LessThan, Value: "0.01"},
	}}
	for _, e := range edits {
		e(&g)
	}
	return g
}

// webReady is a gate about a Deployment of the policy's namespace.
func webReady(edits ...func(*refitv1.HealthGate)) refitv1.HealthGate {
	g := refitv1.HealthGate{Name: "web", CEL: &refitv1.CELGate{
		Expression: "web.status.?readyReplicas.orValue(0) >= 2",
		Objects:    []refitv1.GateObject{{Name: "web", Cluster: refitv1.ManagementCluster, APIVersion: "apps/v1", Kind: "Deployment", ObjectName: "web"}},
	}}
	for _, e := range edits {
		e(&g)
	}
	return g
}

type edit = func(*refitv1.HealthGate)

func expression(text string) edit { return func(g *refitv1.HealthGate) { g.CEL.Expression = text } }

func object(change func(*refitv1.GateObject)) edit {
	return func(g *refitv1.HealthGate) { change(&g.CEL.Objects[0]) }
}

func TestCompile(t *testing.T) {
	const url = "https://prometheus.example.org"
	for name, tc := range map[string]struct {
		gate refitv1.HealthGate
		err  string // empty: it can be read
	}{
		"a query":                      {errorRatio(url), ""},
		"an expression":                {webReady(), ""},
		"neither":                      {refitv1.HealthGate{Name: "none"}, "gates[0]: it is to have either prometheus or cel"},
		"both":                         {errorRatio(url, func(g *refitv1.HealthGate) { g.CEL = webReady().CEL }), "gates[0]: it is to have either prometheus or cel"},
		"no name":                      {errorRatio(url, func(g *refitv1.HealthGate) { g.Name = "" }), "gates[0].name: it has none"},
		"an interval that is too long": {errorRatio(url, func(g *refitv1.HealthGate) { g.Interval = "61m" }), "gates[0].interval: 1h1m0s is more than 1h0m0s"},
		"an interval that is too short": {
			errorRatio(url, func(g *refitv1.HealthGate) { g.Interval, g.Timeout = "5s", "1s" }), "gates[0].interval: 5s is less than 10s",
		},
		"a timeout that is too long": {
			errorRatio(url, func(g *refitv1.HealthGate) { g.Interval, g.Timeout = "10m", "31s" }), "gates[0].timeout: 31s is more than 30s",
		},
		"a timeout beyond the interval": {errorRatio(url, func(g *refitv1.HealthGate) { g.Timeout = "16s" }), "gates[0].timeout: 16s is more than half of the interval, 30s"},
		"no duration":                   {errorRatio(url, func(g *refitv1.HealthGate) { g.Timeout = "soon" }), `gates[0].timeout: "soon" is not a duration`},
		"onError":                       {errorRatio(url, func(g *refitv1.HealthGate) { g.OnError = "Open" }), `gates[0].onError: "Open" is not known`},
		"onEmpty":                       {errorRatio(url, func(g *refitv1.HealthGate) { g.Prometheus.OnEmpty = "Open" }), `gates[0].prometheus.onEmpty: "Open" is not known`},
		"a user in the URL":             {errorRatio("https://ann:secret@prometheus"), "gates[0].prometheus.url: it is to have no user"},
		"another scheme":                {errorRatio("file:///etc/passwd"), "gates[0].prometheus.url: it is to be like"},
		"no query":                      {errorRatio(url, func(g *refitv1.HealthGate) { g.Prometheus.Query = "" }), "gates[0].prometheus.query: it is empty"},
		"no operator":                   {errorRatio(url, func(g *refitv1.HealthGate) { g.Prometheus.MustBe.Operator = "<" }), `gates[0].prometheus.mustBe.operator: "<" is not known`},
		"no number":                     {errorRatio(url, func(g *refitv1.HealthGate) { g.Prometheus.MustBe.Value = "NaN" }), `gates[0].prometheus.mustBe.value: "NaN" is no number`},
		"no Secret":                     {errorRatio(url, func(g *refitv1.HealthGate) { g.Prometheus.Auth = &refitv1.PrometheusAuth{} }), "gates[0].prometheus.auth.secretRef.name: it is empty"},
		"an expression with a mistake":  {webReady(expression("web.status >")), "gates[0].cel.expression: ERROR: <input>:1:13: Syntax error"},
		"one of something else":         {webReady(expression("db.status.ready")), "gates[0].cel.expression: ERROR: <input>:1:1: undeclared reference to 'db'"},
		"one that is a number":          {webReady(expression("1 + 1")), "gates[0].cel.expression: it is a int, and is to be true or false"},
		"no objects":                    {webReady(expression("true"), func(g *refitv1.HealthGate) { g.CEL.Objects = nil }), "gates[0].cel.objects: there is none"},
		"a Secret":                      {webReady(object(func(o *refitv1.GateObject) { o.APIVersion, o.Kind = "v1", "Secret" })), "gates[0].cel.objects[0].kind: a gate can't be about Secrets"},
		"a Secret, in another spelling": {webReady(object(func(o *refitv1.GateObject) { o.APIVersion, o.Kind = "v1", "secret" })), "gates[0].cel.objects[0].kind: a gate can't be about Secrets"},
		"a Secret by an empty group":    {webReady(object(func(o *refitv1.GateObject) { o.APIVersion, o.Kind = "/v1", "Secret" })), "gates[0].cel.objects[0].kind: a gate can't be about Secrets"},
		"a Secret of a workload cluster": {
			webReady(object(func(o *refitv1.GateObject) { o.Cluster, o.APIVersion, o.Kind = refitv1.WorkloadCluster, "v1", "Secret" })), "gates[0].cel.objects[0].kind: a gate can't be about Secrets",
		},
		"what nodes are bootstrapped from": {
			webReady(object(func(o *refitv1.GateObject) {
				o.APIVersion, o.Kind = "bootstrap.cluster.x-k8s.io/v1beta2", "KubeadmConfig"
			})), "gates[0].cel.objects[0].apiVersion: a gate can't be about",
		},
		"another namespace of the management cluster": {
			webReady(object(func(o *refitv1.GateObject) { o.Namespace = "kube-system" })), "gates[0].cel.objects[0].namespace: objects of the management cluster are those of the policy's namespace",
		},
		"a cluster that is none":       {webReady(object(func(o *refitv1.GateObject) { o.Cluster = "Moon" })), `gates[0].cel.objects[0].cluster: "Moon" is not known`},
		"a variable that is none":      {webReady(object(func(o *refitv1.GateObject) { o.Name = "a-b" })), `gates[0].cel.objects[0].name: "a-b" is no name of a variable`},
		"an apiVersion that is none":   {webReady(object(func(o *refitv1.GateObject) { o.APIVersion = "a/b/c" })), `gates[0].cel.objects[0].apiVersion: "a/b/c" is none`},
		"an object without a name":     {webReady(object(func(o *refitv1.GateObject) { o.ObjectName = "" })), "gates[0].cel.objects[0]: it is to have kind and objectName"},
		"two objects of the same name": {webReady(func(g *refitv1.HealthGate) { g.CEL.Objects = append(g.CEL.Objects, g.CEL.Objects[0]) }), `gates[0].cel.objects[1].name: another object has the name "web"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Compile([]refitv1.HealthGate{tc.gate})
			if tc.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.err)
			}
		})
	}
	gates, err := Compile([]refitv1.HealthGate{errorRatio(url), webReady(object(func(o *refitv1.GateObject) { o.Cluster = refitv1.WorkloadCluster }))})
	require.NoError(t, err)
	require.Equal(t, 30*time.Second, gates[0].Interval)
	require.False(t, gates[0].OfCluster)
	require.True(t, gates[1].OfCluster, "each cluster has an answer of its own")
	_, err = Compile([]refitv1.HealthGate{errorRatio(url), errorRatio(url)})
	require.EqualError(t, err, `gates[1].name: another gate has the name "errors"`)
}

func TestWhereGatesMayAsk(t *testing.T) {
	allowed, err := ParseURLs([]string{"https://prometheus.monitoring.svc:9090", "http://127.0.0.1:9090/team-a/"})
	require.NoError(t, err)
	for url, may := range map[string]bool{
		"https://prometheus.monitoring.svc:9090":            true,
		"https://prometheus.monitoring.svc:9090/":           true,
		"https://PROMETHEUS.monitoring.svc:9090/prefix":     true,
		"http://prometheus.monitoring.svc:9090":             false,
		"https://prometheus.monitoring.svc":                 false,
		"http://127.0.0.1:9090/team-a/..;/team-b":           false,
		"https://prometheus.monitoring.svc:9090.evil.com":   false,
		"https://prometheus.monitoring.svc:9090@evil.com":   false,
		"https://evil.com/https://prometheus.monitoring":    false,
		"http://127.0.0.1:9090/team-a":                      true,
		"http://127.0.0.1:9090/team-a/sub":                  true,
		"http://127.0.0.1:9090/team-ab":                     false,
		"http://127.0.0.1:9090":                             false,
		"http://127.0.0.1:9090/team-a/../admin":             false,
		"http://127.0.0.1:9090/team-a/%2e%2e/admin":         false,
		"http://127.0.0.1:9090/team-a?x=":                   false,
		"http://127.0.0.1:9090/team-a//x":                   false,
		"gopher://prometheus.monitoring.svc:9090/_anything": false,
	} {
		err := allowed.Allow(&Gate{URL: url})
		require.Equal(t, may, err == nil, "%s: %v", url, err)
	}
	require.NoError(t, URLs(nil).Allow(&Gate{}), "a gate about objects asks none")
	require.ErrorContains(t, URLs(nil).Allow(&Gate{URL: "https://prometheus"}), "--gate-prometheus-url-prefixes")
	_, err = ParseURLs([]string{"prometheus:9090"})
	require.ErrorContains(t, err, `"prometheus:9090": it is to be like`)
}
