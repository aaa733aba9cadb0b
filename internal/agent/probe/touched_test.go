package probe

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
	"github.com/capi-refit/refit/internal/disruption"
)

// names are those of probes.
func names(all []Probe) []string {
	var out []string
	for _, p := range all {
		out = append(out, p.Name)
	}
	return out
}

// resolver gives a node a getent that knows what is in a file of the test's.
func resolver(t *testing.T, dir, known string) {
	t.Helper()
	put(t, dir, "/known", known)
	program(t, dir, "/usr/bin/getent", `[ "$1" = ahosts ] && grep -qx "$2" "$REFIT_ROOT/known" && echo "192.0.2.1 STREAM $2"`)
}

func TestNamesOfANodeThatReachesTheAPIServerByAddress(t *testing.T) {
	n := staticpodtest.NewNode(t)
	n.Put("/etc/resolv.conf", "# by hand\nsearch old.example\nsearch corp.example  lab.example .\nnameserver 192.0.2.53\n")
	require.Empty(t, Names(n.Host, nil), "without a getent nothing can be asked")
	resolver(t, n.Dir, "lab.example\n")
	before := Names(n.Host, nil)
	require.Equal(t, []string{"resolving corp.example", "resolving lab.example"}, names(before))
	require.ErrorIs(t, ask(t, before, "resolving corp.example"), ErrAbsent, "a domain need have no address")
	require.NoError(t, ask(t, before, "resolving lab.example"))

	n.Put("/etc/resolv.conf", "nameserver 192.0.2.66\n")
	n.Put("/known", "")
	after := Names(n.Host, []string{Kubelet, "resolving lab.example"})
	require.Equal(t, []string{"resolving lab.example"}, names(after), "what resolved is asked again, whatever the node searches now")
	require.EqualError(t, ask(t, after, "resolving lab.example"), "it has no address")
}

func TestNamesOfANodeThatReachesTheAPIServerByName(t *testing.T) {
	n := staticpodtest.NewNode(t)
	n.Put("/etc/resolv.conf", "search corp.example\n")
	n.Put(staticpod.KubeletConfig, strings.Replace(n.Get(staticpod.KubeletConfig), "127.0.0.1", "api.example", 1))
	resolver(t, n.Dir, "api.example\n")
	all := Names(n.Host, nil)
	require.Equal(t, []string{"resolving api.example"}, names(all))
	require.NoError(t, ask(t, all, "resolving api.example"))
	require.True(t, all[0].Elsewhere)
	n.Put("/known", "")
	require.EqualError(t, ask(t, all, "resolving api.example"), "it has no address", "the kubelet can't do without it")
}

func TestTime(t *testing.T) {
	const (
		reached = "^,*,192.0.2.1,2,6,17,23,0.000012,0.000012,0.0001\n"
		silent  = "^,?,192.0.2.1,0,6,0,4294967295,0.0,0.0,0.0\n"
		heard   = `NTPMessage={ Leap=0, Version=4, Mode=4, Stratum=2, Ignored=no, PacketCount=3, Jitter=0 }`
	)
	for name, tc := range map[string]struct {
		active, program, says string
		want                  string // "" for a source that is reached
		absent                bool
	}{
		"chrony that is answered":           {active: "chrony.service", program: "chronyc", says: silent + reached},
		"chronyd, too":                      {active: "chronyd.service", program: "chronyc", says: reached},
		"chrony that hears nothing":         {active: "chrony.service", program: "chronyc", says: silent, want: "chrony.service reaches none of its sources"},
		"chrony that has no source":         {active: "chrony.service", program: "chronyc", says: "", want: "chrony.service reaches none of its sources"},
		"chrony without its client":         {active: "chrony.service", program: "other", absent: true},
		"timesyncd that is answered":        {active: disruption.TimeSyncUnit, program: "timedatectl", says: heard},
		"timesyncd that has just started":   {active: disruption.TimeSyncUnit, program: "timedatectl", says: "", want: "systemd-timesyncd.service reaches none of its servers"},
		"timesyncd that counts no packet":   {active: disruption.TimeSyncUnit, program: "timedatectl", says: strings.Replace(heard, "=3", "=0", 1), want: "reaches none"},
		"a node that nothing keeps in time": {program: "chronyc", says: reached, absent: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := host.Host{Root: host.Root{Dir: t.TempDir()}, Units: stubUnits{tc.active: {LoadState: "loaded", ActiveState: "active"}}}
			put(t, h.Dir, "/says", tc.says)
			program(t, h.Dir, "/usr/bin/"+tc.program, `cat "$REFIT_ROOT/says"`)
			err := Time(h).Ask(t.Context())
			switch {
			case tc.absent:
				require.ErrorIs(t, err, ErrAbsent)
			case tc.want == "":
				require.NoError(t, err)
			default:
				require.ErrorContains(t, err, tc.want)
			}
		})
	}
	require.ErrorIs(t, Time(host.Host{Root: host.Root{Dir: t.TempDir()}}).Ask(t.Context()), ErrAbsent)
}

func TestEtcdOnThisNode(t *testing.T) {
	n := staticpodtest.NewNode(t)
	status, health := `{"leader":"1","raftIndex":"2000","raftAppliedIndex":"1999"}`, `{"health":"true"}`
	cert, key := n.CA.Issue("cp-1", "localhost", "127.0.0.1")
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	member := n.CA.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := status
		if r.URL.Path == "/health" {
			answer = health
		}
		_, _ = io.WriteString(w, answer)
	}), func() (tls.Certificate, error) { return pair, nil })
	all := All(n.Host, false)
	require.ErrorIs(t, ask(t, all, EtcdMember), ErrAbsent, "a node without etcd")
	n.Put(etcdManifest, "{apiVersion: v1, kind: Pod, metadata: {name: etcd}, spec: {containers: [{name: etcd, command: [etcd, "+
		"\"--listen-client-urls=https://192.0.2.1:2379,"+member.URL+"\", --trusted-ca-file=/etc/etcd/ca.crt]}]}}")
	require.ErrorIs(t, ask(t, all, EtcdMember), ErrAbsent, "an etcd that kubeadm did not make")
	cert, key = n.CA.Issue("kube-etcd-healthcheck-client")
	n.Put("/etc/etcd/ca.crt", string(n.CA.PEM))
	n.Put("/etc/etcd/healthcheck-client.crt", string(cert))
	n.Put("/etc/etcd/healthcheck-client.key", string(key))
	require.NoError(t, ask(t, all, EtcdMember))
	health = `{"health":"false","reason":"RAFT NO LEADER"}`
	require.ErrorContains(t, ask(t, all, EtcdMember), "it is not healthy")
	health, status = `{"health":"true"}`, `{"leader":"1","raftIndex":"3001","raftAppliedIndex":"2000"}`
	require.EqualError(t, ask(t, all, EtcdMember), "the member is 1001 entries behind, of which 1000 are bearable")
}
