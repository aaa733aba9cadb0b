package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/node"
)

// workshop is where a certificate is made, below the agent's own directory.
const workshop = "certificate"

// canSign returns an error if a certificate can't be made on the node.
func (k *Kind) canSign(c certificate, want *node.ControlPlane) error {
	dir := path.Dir(c.certFile)
	for _, name := range authority {
		state, err := k.host.Observe(path.Join(dir, name))
		if err != nil {
			return err
		}
		if !state.Exists {
			return fmt.Errorf("%s is missing, so no certificate can be made on the node: with an external authority, make it there "+
				"for the names %v", path.Join(dir, name), c.names(want))
		}
	}
	return nil
}

// sign makes a certificate again, with the names that are wanted.
//
// kubeadm makes one only where there is none ("init phase certs apiserver"), so it is given a directory of its own, in which the authority
// is but a link: the pair that is served stays until there is another. The new one is then put in place file by file. The API server
// reads its pair again when the files change, and takes it once the two fit together (k8s.io/apiserver's DynamicCertKeyPairContent, which
// also looks once a minute). etcd reads its pairs at each handshake, as a server and as a peer that connects to another (GetCertificate and
// GetClientCertificate in etcd's client/pkg/transport/listener.go). So neither is restarted.
func (k *Kind) sign(ctx context.Context, s shown, c certificate, config *clusterConfiguration, want *node.ControlPlane) error {
	if err := k.canSign(c, want); err != nil {
		return err
	}
	if err := k.bearsCertificates(ctx, s, []certificate{c}); err != nil {
		return err
	}
	dir := filepath.Join(k.host.Private, workshop)
	if err := k.host.Disk.RemoveAll(dir); err != nil {
		return err
	}
	made := filepath.Join(dir, c.made) // without .crt and .key
	if err := k.host.Disk.Mkdirs(filepath.Dir(made), 0o700); err != nil {
		return err
	}
	defer func() { _ = k.host.Disk.RemoveAll(dir) }() // a key that is not used; the next one begins with that too
	onNode, err := k.prepare(dir, s, c, config)
	if err != nil {
		return err
	}
	_, err = k.host.RunTelling(ctx, host.Command{
		Name: "kubeadm", Args: []string{"init", "phase", "certs", c.phase, "--config=" + path.Join(onNode, "kubeadm.yaml")},
	})
	if err != nil {
		return fmt.Errorf("kubeadm could not make the %s: %w", c.what, err)
	}
	cert, err := k.host.Disk.ReadFile(made + ".crt")
	if err != nil {
		return err
	}
	key, err := k.host.Disk.ReadFile(made + ".key")
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return errors.New("kubeadm has made a certificate that does not fit its key")
	}
	if c.of(pair.Leaf).lacksSANs(want, nil) {
		return fmt.Errorf("kubeadm has made a %s that lacks some of %s: it takes names and addresses only", c.what, c.field)
	}
	return errors.Join(k.replace(c.keyFile, key, 0o600), k.replace(c.certFile, cert, 0o644))
}

// prepare lays out what kubeadm needs, and returns the directory as the node calls it.
func (k *Kind) prepare(dir string, s shown, c certificate, config *clusterConfiguration) (string, error) {
	onNode := "/" + relative(k.host.Dir, dir)
	for _, name := range authority {
		link := filepath.Join(dir, filepath.Dir(c.made), name)
		if err := k.host.Disk.Link(path.Join(path.Dir(c.certFile), name), link); err != nil {
			return "", err
		}
	}
	cluster, err := staticpod.Connect(k.host.Root, staticpod.KubeletConfig)
	if err != nil {
		return "", err
	}
	name, err := cluster.NodeName()
	if err != nil {
		return "", err
	}
	whole := maps.Clone(config.whole)
	whole["certificatesDir"] = onNode
	init := map[string]any{
		"apiVersion": config.APIVersion, "kind": "InitConfiguration",
		"nodeRegistration": map[string]any{"name": name},
		"localAPIEndpoint": map[string]any{"advertiseAddress": s.argument(apiServer, "advertise-address", "")},
	}
	text, err := documents(whole, init)
	if err != nil {
		return "", err
	}
	return onNode, k.host.Disk.WriteFile(filepath.Join(dir, "kubeadm.yaml"), text)
}

func relative(root, dir string) string {
	rel, err := filepath.Rel(root, dir)
	if err != nil {
		return dir
	}
	return rel
}

func documents(all ...map[string]any) ([]byte, error) {
	var texts [][]byte
	for _, d := range all {
		text, err := yaml.Marshal(d)
		if err != nil {
			return nil, err
		}
		texts = append(texts, []byte("---\n"), text)
	}
	return slices.Concat(texts...), nil
}

// replace writes a file with the mode and owner that it has.
func (k *Kind) replace(p string, content []byte, mode uint32) error {
	state, err := k.host.Observe(p)
	if err != nil {
		return err
	}
	if !state.Exists {
		state = host.State{UID: host.KeepOwner, GID: host.KeepOwner, Mode: mode}
	}
	return k.host.WriteFile(p, content, state)
}

// served returns an error unless the API server at an address shows a certificate with the names that are wanted.
func served(ctx context.Context, cluster *staticpod.Cluster, address string, want *node.ControlPlane) error {
	if want == nil || len(want.CertSANs) == 0 {
		return nil
	}
	trust := cluster.TLS()
	trust.ServerName = "kubernetes" // each API server's certificate has it
	conn, err := (&tls.Dialer{Config: trust}).DialContext(ctx, "tcp", address)
	if err != nil {
		return errors.New("it does not take connections")
	}
	defer func() { _ = conn.Close() }()
	tlsConn, ok := conn.(*tls.Conn)
	if !ok {
		return errors.New("it does not speak TLS")
	}
	serves := certificate{issue: issues[0]}.of(tlsConn.ConnectionState().PeerCertificates[0])
	if serves.lacksSANs(want, nil) {
		return errors.New("it still serves a certificate without some of certSANs")
	}
	return nil
}
