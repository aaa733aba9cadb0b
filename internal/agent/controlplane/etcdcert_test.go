package controlplane

import (
	"crypto/tls"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
	"github.com/capi-refit/refit/internal/node"
)

const etcdPKI = "/etc/kubernetes/pki/etcd/"

// etcdServer is a member of etcd that serves certificates of its own, read from the files at each handshake as etcd does.
type etcdServer struct {
	*fixture
	// stuck are the certificates that go on being served whatever the files say, by the name of their files.
	stuck map[string]tls.Certificate
}

// newEtcdServer gives the node such a member, and kubeadm certificates to make: with the names that are wanted, beside kubeadm's.
func newEtcdServer(t *testing.T, serverSANs, peerSANs []string) *etcdServer {
	t.Helper()
	x := &etcdServer{fixture: newFixture(t), stuck: map[string]tls.Certificate{}}
	x.Put(etcdPKI+"ca.key", string(x.CA.KeyPEM))
	urls := map[string]string{}
	for name, sans := range map[string][]string{"server": serverSANs, "peer": peerSANs} {
		for dir, names := range map[string][]string{etcdPKI: nil, "/next/": sans} {
			cert, key := x.CA.Issue("cp-1", append([]string{"localhost", "127.0.0.1"}, names...)...)
			x.Put(dir+name+".crt", string(cert))
			x.Put(dir+name+".key", string(key))
		}
		s := x.CA.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { x.Set(func(*staticpodtest.Node) { x.Etcd(w, r) }) }), func() (tls.Certificate, error) {
			if pair, ok := x.stuck[name]; ok {
				return pair, nil
			}
			return tls.LoadX509KeyPair(x.Path(etcdPKI+name+".crt"), x.Path(etcdPKI+name+".key"))
		})
		urls[name] = s.URL
	}
	m := staticpodtest.Pod(etcdMember, "registry.k8s.io/etcd:3.6.8-0", etcdMember, "--listen-client-urls="+urls["server"],
		"--listen-peer-urls="+urls["peer"], "--trusted-ca-file="+etcdPKI+"ca.crt", "--cert-file="+etcdPKI+"server.crt",
		"--key-file="+etcdPKI+"server.key", "--peer-cert-file="+etcdPKI+"peer.crt", "--peer-key-file="+etcdPKI+"peer.key")
	x.Put(manifestPath(etcdMember), m)
	x.Config = config + "etcd: {local: {dataDir: /var/lib/etcd, serverCertSANs: [" + strings.Join(serverSANs, ",") + "], peerCertSANs: [" +
		strings.Join(peerSANs, ",") + "]}}\n"
	return x
}

// etcdNames is what the specs want of both certificates.
func etcdNames(server, peer []string) *node.Resource {
	return spec(func(c *node.ControlPlane) { c.Etcd.ServerCertSANs, c.Etcd.PeerCertSANs = server, peer })
}

func (x *etcdServer) pairs() (all string) {
	for _, name := range []string{"server", "peer"} {
		all += x.Get(etcdPKI+name+".crt") + x.Get(etcdPKI+name+".key")
	}
	return all
}

func (x *etcdServer) next() (all string) {
	for _, name := range []string{"server", "peer"} {
		all += x.Get("/next/"+name+".crt") + x.Get("/next/"+name+".key")
	}
	return all
}

func TestCertificatesOfEtcd(t *testing.T) {
	server, peer := []string{"etcd.example", "10.1.2.3"}, []string{"peer.example"}
	want := etcdNames(server, peer)
	t.Run("are made, served and put back", func(t *testing.T) {
		x := newEtcdServer(t, server, peer)
		before, manifest := x.pairs(), x.Get(manifestPath(etcdMember))
		c := x.change(spec(nil), want)
		for range 2 {
			note, err := x.kind.Make(t.Context(), c)
			require.NoError(t, err)
			require.Empty(t, note)
			require.Equal(t, x.next(), x.pairs())
		}
		const at = " --config=/var/lib/refit/certificate/kubeadm.yaml\n"
		require.Equal(t, "init phase certs etcd-server"+at+"init phase certs etcd-peer"+at, x.calls(), "each once, and no manifest is made again")
		require.Equal(t, manifest, x.Get(manifestPath(etcdMember)))
		require.NoDirExists(t, x.Path("/var/lib/refit/certificate"))
		require.Empty(t, x.ask(want, want).Drift)
		require.NoError(t, x.kind.Undo(t.Context(), c))
		require.Equal(t, before, x.pairs())
		require.Equal(t, []string{"server certificate of etcd", "peer certificate of etcd"}, x.ask(want, want).Drift)
	})
	t.Run("one of them only", func(t *testing.T) {
		x := newEtcdServer(t, nil, peer)
		cert := x.Get(etcdPKI + "server.crt")
		_, err := x.kind.Make(t.Context(), x.change(spec(nil), etcdNames(nil, peer)))
		require.NoError(t, err)
		require.Equal(t, cert, x.Get(etcdPKI+"server.crt"))
		require.Equal(t, x.Get("/next/peer.crt"), x.Get(etcdPKI+"peer.crt"))
	})
	t.Run("a name is taken away", func(t *testing.T) {
		x := newEtcdServer(t, nil, peer)
		_, err := x.kind.Make(t.Context(), x.change(spec(nil), etcdNames(nil, peer)))
		require.NoError(t, err)
		x.Config = config + etcdConfig
		cert, key := x.CA.Issue("cp-1", "localhost")
		x.Put("/next/peer.crt", string(cert))
		x.Put("/next/peer.key", string(key))
		_, err = x.kind.Make(t.Context(), x.change(etcdNames(nil, peer), spec(nil)))
		require.NoError(t, err)
		require.Equal(t, string(cert), x.Get(etcdPKI+"peer.crt"))
	})
	for _, name := range []string{"server", "peer"} {
		t.Run("one that etcd does not serve is a failure: "+name, func(t *testing.T) {
			x := newEtcdServer(t, server, peer)
			before := x.pairs()
			pair, err := tls.LoadX509KeyPair(x.Path(etcdPKI+name+".crt"), x.Path(etcdPKI+name+".key"))
			require.NoError(t, err)
			x.stuck[name] = pair
			c := x.change(spec(nil), want)
			x.kind.host.Clock = &staticpodtest.Impatient{Left: 20}
			_, err = x.kind.Make(t.Context(), c)
			require.ErrorContains(t, err, "it still serves a "+name+" certificate of etcd without some of "+name+"CertSANs")
			x.kind.host.Clock = staticpodtest.Clock{}
			require.NoError(t, x.kind.Undo(t.Context(), c))
			require.Equal(t, before, x.pairs())
		})
	}
	t.Run("kubeadm fails", func(t *testing.T) {
		x := newEtcdServer(t, server, peer)
		before := x.pairs()
		x.Put("/fail-certs", "")
		_, err := x.kind.Make(t.Context(), x.change(spec(nil), want))
		require.ErrorContains(t, err, "kubeadm could not make the server certificate of etcd")
		require.Equal(t, before, x.pairs())
	})
	t.Run("a death between key and certificate", func(t *testing.T) {
		x := newEtcdServer(t, server, peer)
		c := x.change(spec(nil), want)
		x.Put(etcdPKI+"peer.key", x.Get("/next/peer.key")) // no peer gets a connection any more
		c.Again = true
		_, err := x.kind.Make(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, x.next(), x.pairs())
	})
}

func TestCertificatesOfEtcdThatAreNotMade(t *testing.T) {
	sans := []string{"peer.example"}
	for name, tc := range map[string]struct {
		prepare func(x *etcdServer)
		blocked string
	}{
		"a cluster of one member, which is well": {func(x *etcdServer) { x.Members = `{"name":"a"}` }, ""},
		"kubeadm-config says otherwise":          {func(x *etcdServer) { x.Config = config + etcdConfig }, "(etcd peerCertSANs)"},
		"an authority elsewhere": {func(x *etcdServer) { require.NoError(x, os.Remove(x.Path(etcdPKI+"ca.key"))) }, etcdPKI + "ca.key is missing, so no certificate can be made on the node: " +
			"with an external authority, make it there for the names [peer.example]"},
		"a member that has not started": {func(x *etcdServer) { x.Members = `{"name":"a"},{"name":""},{"name":"c"}` }, "no member to spare"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newEtcdServer(t, nil, sans)
			tc.prepare(x)
			a := x.ask(spec(nil), etcdNames(nil, sans))
			if tc.blocked == "" {
				require.Empty(t, a.Blocked)
				return
			}
			require.Contains(t, a.Blocked, tc.blocked)
		})
	}
	t.Run("etcd that can't bear it by now", func(t *testing.T) {
		x := newEtcdServer(t, nil, sans)
		before := x.pairs()
		c := x.change(spec(nil), etcdNames(nil, sans))
		x.Set(func(*staticpodtest.Node) { x.Members = `{"name":"a"},{"name":""},{"name":"c"}` })
		_, err := x.kind.Make(t.Context(), c)
		require.ErrorContains(t, err, "no member to spare")
		require.Empty(t, x.calls())
		require.Equal(t, before, x.pairs())
	})
}
