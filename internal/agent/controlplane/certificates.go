package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/node"
)

// authority are the files of one, which are in the directory of the certificates that it signs.
var authority = []string{"ca.crt", "ca.key"}

// issue is a certificate that kubeadm makes, and in which the specs put names.
type issue struct {
	// component serves it, phase is kubeadm's for it, and made where it is in kubeadm's certificatesDir, without .crt and .key.
	component, phase, made string
	// what it is, and the field with the names, for people.
	what, field string
	// certArg and keyArg are the component's arguments that name the files; listenArg is that with the addresses, if it is etcd's.
	certArg, keyArg, listenArg string
	// names are those of the specs.
	names func(*node.ControlPlane) []string
}

// issues are all. The API server's is the first.
var issues = []issue{
	{
		component: apiServer, phase: "apiserver", made: "apiserver", what: "certificate of " + apiServer, field: "certSANs",
		certArg: "tls-cert-file", keyArg: "tls-private-key-file",
		names: func(c *node.ControlPlane) []string { return c.CertSANs },
	},
	{
		component: etcdMember, phase: "etcd-server", made: "etcd/server", what: "server certificate of etcd", field: "serverCertSANs",
		certArg: "cert-file", keyArg: "key-file", listenArg: "listen-client-urls",
		names: func(c *node.ControlPlane) []string { return ofEtcd(c).ServerCertSANs },
	},
	{
		component: etcdMember, phase: "etcd-peer", made: "etcd/peer", what: "peer certificate of etcd", field: "peerCertSANs",
		certArg: "peer-cert-file", keyArg: "peer-key-file", listenArg: "listen-peer-urls",
		names: func(c *node.ControlPlane) []string { return ofEtcd(c).PeerCertSANs },
	},
}

// ofEtcd is what the specs say about etcd, which is nothing where it runs elsewhere.
func ofEtcd(c *node.ControlPlane) node.Component {
	if c.Etcd == nil {
		return node.Component{}
	}
	return *c.Etcd
}

// certificate is one on disk.
type certificate struct {
	issue
	certFile, keyFile string
	// leaf is nil if the pair can't be used.
	leaf *x509.Certificate
}

// certificate reads one, from the paths that the manifest names.
func (k *Kind) certificate(s shown, i issue) (certificate, error) {
	standard := path.Join("/etc/kubernetes/pki", i.made)
	c := certificate{issue: i}
	c.certFile = s.argument(i.component, i.certArg, standard+".crt")
	c.keyFile = s.argument(i.component, i.keyArg, standard+".key")
	cert, _, err := k.host.ReadFile(c.certFile)
	if err != nil {
		return certificate{}, err
	}
	key, _, err := k.host.ReadFile(c.keyFile)
	if err != nil {
		return certificate{}, err
	}
	if pair, err := tls.X509KeyPair(cert, key); err == nil {
		c.leaf = pair.Leaf
	}
	return c, nil
}

// of returns the certificate as if leaf were what is there.
func (c certificate) of(leaf *x509.Certificate) certificate {
	c.leaf = leaf
	return c
}

// lacksSANs reports whether the certificate has to be made again: it lacks a name that is wanted, or has one that no longer is.
func (c certificate) lacksSANs(want, was *node.ControlPlane) bool {
	wanted, before := c.names(want), []string(nil)
	if was != nil {
		before = c.names(was)
	}
	if c.leaf == nil {
		return len(wanted)+len(before) > 0
	}
	if slices.ContainsFunc(wanted, func(san string) bool { return !hasSAN(c.leaf, san) }) {
		return true
	}
	return slices.ContainsFunc(before, func(san string) bool { return !slices.Contains(wanted, san) && hasSAN(c.leaf, san) })
}

func hasSAN(leaf *x509.Certificate, san string) bool {
	if ip := net.ParseIP(san); ip != nil {
		return slices.ContainsFunc(leaf.IPAddresses, ip.Equal)
	}
	return slices.ContainsFunc(leaf.DNSNames, func(name string) bool { return strings.EqualFold(name, san) })
}

// bearsCertificates returns an error if certificates are etcd's, and etcd does not stand as firmly as one of its size can. Its member goes on
// running, and its data are not touched; but should the others not take its new certificate, they lose it until the old one is put back. A
// member whose pair can't be used is lost to them already.
func (k *Kind) bearsCertificates(ctx context.Context, s shown, certificates []certificate) error {
	if !slices.ContainsFunc(certificates, func(c certificate) bool { return c.component == etcdMember && c.leaf != nil }) {
		return nil
	}
	member, err := k.member(s)
	if err != nil {
		return err
	}
	return member.Steady(ctx)
}

// awaitEtcdServes waits until the member of this node shows certificates with the names that are wanted, to clients and to its peers, and is
// well.
func (k *Kind) awaitEtcdServes(ctx context.Context, s shown, want *node.ControlPlane) error {
	for _, c := range s.certificates {
		if want == nil || c.component != etcdMember || len(c.names(want)) == 0 {
			continue
		}
		err := staticpod.Until(ctx, k.host.Clock, func() error { return k.etcdServes(ctx, s, c, want) })
		if err != nil {
			return fmt.Errorf("etcd of this node is not as it has to be: %w", err)
		}
	}
	return nil
}

func (k *Kind) etcdServes(ctx context.Context, s shown, c certificate, want *node.ControlPlane) error {
	member, err := k.member(s)
	if err != nil {
		return err
	}
	leaf, err := member.Certificate(ctx, listens(s, c.listenArg))
	if err != nil {
		return err
	}
	if c.of(leaf).lacksSANs(want, nil) {
		return fmt.Errorf("it still serves a %s without some of %s", c.what, c.field)
	}
	return member.Healthy(ctx)
}

// listens returns the URL at which etcd listens, on loopback if it does.
func listens(s shown, arg string) (url string) {
	otherwise := map[string]string{"listen-client-urls": "https://127.0.0.1:2379", "listen-peer-urls": "https://127.0.0.1:2380"}[arg]
	for u := range strings.SplitSeq(s.argument(etcdMember, arg, otherwise), ",") {
		if url == "" || strings.Contains(u, "//127.0.0.1:") || strings.Contains(u, "//[::1]:") {
			url = u
		}
	}
	return url
}

// healCertificates puts back pairs that don't fit: the process was killed between the two files. etcd takes no connection with such a one,
// and without it the API server of this node may not answer for what the change needs.
func (k *Kind) healCertificates(b Saved) (etcds bool, err error) {
	s, err := k.look()
	if err != nil || s.manifests == nil {
		return false, err
	}
	for _, c := range s.certificates {
		cert, key := b.Files[c.certFile], b.Files[c.keyFile]
		if _, err := tls.X509KeyPair(cert.Data, key.Data); c.leaf != nil || err != nil {
			continue
		}
		if err := errors.Join(k.host.PutBack(c.keyFile, key), k.host.PutBack(c.certFile, cert)); err != nil {
			return false, err
		}
		etcds = etcds || c.component == etcdMember
	}
	return etcds, nil
}
