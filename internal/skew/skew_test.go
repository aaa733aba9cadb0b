package skew_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/skew"
)

func part(t *testing.T, name, v string) skew.Part {
	parsed, err := skew.Parse(v)
	require.NoError(t, err)
	return skew.Part{Name: name, Version: parsed}
}

// parts reads versions with blanks between them.
func parts(t *testing.T, name, versions string) (all []skew.Part) {
	for _, v := range strings.Fields(versions) {
		all = append(all, part(t, name, v))
	}
	return all
}

func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		controlPlane             bool
		from, to                 string
		servers, kubelets, proxy string
		want                     string // a part of the one message; empty: nothing is in the way
	}{
		"a worker after the control plane":             {from: "v1.35.1", to: "v1.36.3", servers: strings.Repeat("v1.36.3 ", 3), proxy: "v1.36.3"},
		"a worker before the last API server":          {from: "v1.35.1", to: "v1.36.3", servers: "v1.36.3 v1.35.1 v1.36.3", want: "the kubelet of Node n1 would be newer than an API server, which runs v1.35.1"},
		"a worker before a patch of one":               {from: "v1.36.1", to: "v1.36.3", servers: "v1.36.3 v1.36.1", want: "newer than an API server"},
		"a worker before a release, of a candidate":    {from: "v1.35.1", to: "v1.36.0", servers: "v1.36.0-rc.1", want: "newer than an API server"},
		"a worker of a cluster with builds of its own": {from: "v1.35.1-eks-1", to: "v1.36.3", servers: "v1.36.3-eks-2 v1.36.3_ours"},
		"a worker that catches up a minor at a time":   {from: "v1.33.1", to: "v1.34.1", servers: "v1.36.3", proxy: "v1.36.3"},
		"a worker that skips a minor":                  {from: "v1.33.1", to: "v1.35.1", servers: "v1.36.3", want: "can't skip a minor version"},
		"a worker that goes back":                      {from: "v1.36.3", to: "v1.36.1", servers: "v1.36.3", want: "not taken back"},
		"a worker that is there already":               {from: "v1.36.3", to: "v1.36.3", servers: "v1.35.1"},
		"a worker where kube-proxy is old":             {from: "v1.35.1", to: "v1.36.3", servers: "v1.36.3", proxy: "v1.33.0"},
		"a worker where kube-proxy is too old":         {from: "v1.35.1", to: "v1.36.3", servers: "v1.36.3", proxy: "v1.32.9", want: "DaemonSet runs v1.32.9 and would be more than 3 minor versions older than the kubelet of Node n1; have it brought to v1.33"},
		"a worker where kube-proxy is too new":         {from: "v1.34.1", to: "v1.35.1", servers: "v1.36.3 v1.35.1", proxy: "v1.36.3", want: "DaemonSet runs v1.36.3 and is newer than an API server, which runs v1.35.1"},
		"the first API server":                         {controlPlane: true, from: "v1.35.1", to: "v1.36.3", servers: strings.Repeat("v1.35.1 ", 2), kubelets: strings.Repeat("v1.35.1 ", 2), proxy: "v1.35.1"},
		"the last API server":                          {controlPlane: true, from: "v1.35.1", to: "v1.36.3", servers: strings.Repeat("v1.36.3 ", 2), kubelets: "v1.35.1", proxy: "v1.35.1"},
		"the last one, kube-proxy before it":           {controlPlane: true, from: "v1.35.1", to: "v1.36.3", servers: "v1.36.3", kubelets: "v1.35.1", proxy: "v1.36.3"},
		"an API server alone":                          {controlPlane: true, from: "v1.35.1", to: "v1.36.3"},
		"an API server that skips a minor":             {controlPlane: true, from: "v1.35.1", to: "v1.37.0", want: "can't skip a minor version"},
		"an API server that goes back":                 {controlPlane: true, from: "v1.36.3", to: "v1.35.1", want: "not taken back"},
		"an API server two minors past another":        {controlPlane: true, from: "v1.36.3", to: "v1.37.0", servers: "v1.36.3 v1.35.1", want: "an API server runs v1.35.1, and API servers have to be within one minor"},
		"kubelets three minors behind":                 {controlPlane: true, from: "v1.35.1", to: "v1.36.3", kubelets: "v1.33.0", proxy: "v1.33.0"},
		"kubelets four minors behind":                  {controlPlane: true, from: "v1.35.1", to: "v1.36.3", kubelets: "v1.35.1 v1.32.9", want: "a kubelet runs v1.32.9 and would be more than 3 minor versions older than the API server of Node n1; have it brought to v1.33"},
		"kube-proxy four minors behind":                {controlPlane: true, from: "v1.35.1", to: "v1.36.3", proxy: "v1.32.9", want: "DaemonSet runs v1.32.9"},
		"a patch, with kubelets that are behind":       {controlPlane: true, from: "v1.36.1", to: "v1.36.3", servers: "v1.34.0", kubelets: "v1.31.0", proxy: "v1.31.0"},
		"a control plane that kubelets are ahead of":   {controlPlane: true, from: "v1.35.1", to: "v1.36.3", kubelets: "v1.37.0"},
	} {
		t.Run(name, func(t *testing.T) {
			c := skew.Change{Name: "n1", From: part(t, "", tc.from).Version, To: part(t, "", tc.to).Version, ControlPlane: tc.controlPlane}
			cluster := skew.Cluster{APIServers: parts(t, "an API server", tc.servers), Kubelets: parts(t, "a kubelet", tc.kubelets)}
			if tc.proxy != "" {
				cluster.KubeProxy = new(part(t, "DaemonSet", tc.proxy))
			}
			got := c.Check(cluster)
			if tc.want == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			require.Contains(t, got[0], tc.want)
		})
	}
}

// TestRollout has a whole cluster go up as Cluster API has it: one control-plane machine after the other, kube-proxy, then the workers.
func TestRollout(t *testing.T) {
	servers, workers, proxy := []string{"v1.35.1", "v1.35.1", "v1.35.1"}, []string{"v1.35.1", "v1.33.2"}, "v1.35.1"
	at := func(i int, controlPlane bool) []string {
		c := skew.Cluster{Kubelets: parts(t, "a kubelet", strings.Join(workers, " ")), KubeProxy: new(part(t, "kube-proxy", proxy))}
		from := servers
		if !controlPlane {
			from = workers
			c.APIServers = parts(t, "an API server", strings.Join(servers, " "))
		}
		for j, v := range servers {
			if controlPlane && j != i {
				c.APIServers = append(c.APIServers, part(t, "an API server", v))
			}
		}
		change := skew.Change{Name: "n", From: part(t, "", from[i]).Version, To: part(t, "", "v1.36.3").Version, ControlPlane: controlPlane}
		return change.Check(c)
	}
	for i := range servers {
		require.NotEmpty(t, at(0, false), "no worker goes past an API server")
		require.Empty(t, at(i, true))
		servers[i] = "v1.36.3"
	}
	require.Empty(t, at(0, false), "kube-proxy may come later")
	proxy = "v1.36.3"
	require.Empty(t, at(0, false))
	require.NotEmpty(t, at(1, false), "a kubelet skips no minor")
}

func TestParseImage(t *testing.T) {
	for image, want := range map[string]string{
		"registry.k8s.io/kube-apiserver:v1.36.3":                  "1.36.3",
		"localhost:5000/kube-proxy:v1.36.3_ours.1":                "1.36.3",
		"localhost:5000/kube-proxy:v1.36.0-rc.1@sha256:0123":      "1.36.0-rc.1",
		"public.ecr.aws/eks-distro/kube-proxy:v1.36.3-eks-1-36-4": "1.36.3",
		"localhost:5000/kube-proxy":                               "",
		"registry.k8s.io/kube-proxy@sha256:0123":                  "",
		"registry.k8s.io/kube-proxy:latest":                       "",
		"":                                                        "",
	} {
		v, err := skew.ParseImage(image)
		if want == "" {
			require.Error(t, err, image)
			continue
		}
		require.NoError(t, err, image)
		require.Equal(t, want, v.String(), image)
	}
}

// FuzzStep looks for steps that are taken and go back, or skip a minor version.
func FuzzStep(f *testing.F) {
	for _, seed := range [][2]string{{"v1.36.1", "v1.36.3"}, {"v1.36.3", "v1.37.0-rc.1"}, {"1.36", "v1.36.3+b"}, {"v1.36.18446744073709551615", "v1.36.0"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, from, to string) {
		if skew.Step(from, to) == nil {
			require.Error(t, skew.Step(to, from), "no step can be taken both ways")
		}
	})
}

func TestParseExact(t *testing.T) {
	ordered := []string{
		"v1.36.0-alpha.1", "v1.36.0-beta", "v1.36.0-beta.2", "v1.36.0-beta.11", "v1.36.0-rc.1", "v1.36.0", "v1.36.1-eks-1", "v1.36.1+build",
		"v1.36.9", "v1.36.10", "v1.37.0", "v2.0.0",
	}
	for i, a := range ordered[1:] {
		was, err := skew.ParseExact(ordered[i])
		require.NoError(t, err)
		v, err := skew.ParseExact(a)
		require.NoError(t, err)
		require.True(t, was.LessThan(v), "%s %s", was, v)
	}
	for _, text := range []string{"", "1.36.1", "v1.36", "v1.36.01", "v1.36.1-", "v1.36.1+", "latest", "v99999999999999999999.0.0"} {
		_, err := skew.ParseExact(text)
		require.ErrorContains(t, err, "is not a version of Kubernetes", text)
	}
}
