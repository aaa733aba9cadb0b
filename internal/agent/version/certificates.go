package version

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"path"
	"time"

	"sigs.k8s.io/yaml"
)

// authority is one by which kubeadm signs, and what it signs with it: files below the directory of certificates, and kubeconfigs in
// /etc/kubernetes.
type authority struct {
	key         string
	certs       []string
	kubeconfigs []string
}

// renewed are the certificates that kubeadm renews with an upgrade (phases/certs/renewal); those of the authorities are not among them.
var renewed = []authority{
	{
		key: "ca.key", certs: []string{"apiserver.crt", "apiserver-kubelet-client.crt"},
		kubeconfigs: []string{"admin.conf", "super-admin.conf", "controller-manager.conf", "scheduler.conf"},
	},
	{key: "front-proxy-ca.key", certs: []string{"front-proxy-client.crt"}},
	{key: "etcd/ca.key", certs: []string{"apiserver-etcd-client.crt", "etcd/server.crt", "etcd/peer.crt", "etcd/healthcheck-client.crt"}},
}

// kubeconfigDir is where kubeadm writes kubeconfigs.
const kubeconfigDir = "/etc/kubernetes"

// aged returns the first certificate that has less than half of its lifetime left, or "". Those whose authority's key is not on the node
// can't be renewed there, and don't count.
func (k *Kind) aged(pki string) (string, error) {
	now := k.host.Clock.Now()
	for _, a := range renewed {
		if k.host.Find(path.Join(pki, a.key)) == "" {
			continue
		}
		for _, name := range a.certs {
			p := path.Join(pki, name)
			if old, err := k.agedFile(p, now, func(data []byte) ([]byte, error) { return data, nil }); old || err != nil {
				return p, err
			}
		}
		for _, name := range a.kubeconfigs {
			p := path.Join(kubeconfigDir, name)
			if old, err := k.agedFile(p, now, clientCertificate); old || err != nil {
				return p, err
			}
		}
	}
	return "", nil
}

// agedFile reports whether the certificate in a file has less than half of its lifetime left. One that is not there has not.
func (k *Kind) agedFile(p string, now time.Time, certificate func(data []byte) ([]byte, error)) (bool, error) {
	data, state, err := k.host.ReadFile(p)
	if err != nil || !state.Exists {
		return false, err
	}
	text, err := certificate(data)
	if err != nil {
		return false, fmt.Errorf("%s can't be read: it is not a kubeconfig", p)
	}
	if text == nil {
		return false, nil // its certificate is in a file of its own, which is not kubeadm's
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return false, fmt.Errorf("%s holds no certificate", p)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return false, fmt.Errorf("%s holds no certificate", p)
	}
	return halfGone(cert.NotBefore, cert.NotAfter, now), nil
}

// halfGone reports whether less than half of a lifetime is left.
func halfGone(from, to, now time.Time) bool { return to.Sub(now) < to.Sub(from)/2 }

// clientCertificate returns the one in a kubeconfig, or nil.
func clientCertificate(data []byte) ([]byte, error) {
	var config struct {
		Users []struct {
			User struct {
				CertData []byte `json:"client-certificate-data"`
			} `json:"user"`
		} `json:"users"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nil, err
	}
	for _, u := range config.Users {
		if len(u.User.CertData) > 0 {
			return u.User.CertData, nil
		}
	}
	return nil, nil
}
