package system

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/capi-refit/refit/test/lab"
)

// clientNames are the names in the managers' certificates, as config/components/mtls has them.
var clientNames = map[lab.Program]string{
	lab.CoreManager:         "capi-controller-manager.capi-system",
	lab.ControlPlaneManager: "capi-kubeadm-control-plane-controller-manager.capi-kubeadm-control-plane-system",
}

// clientsValid is longer than any system lives.
const clientsValid = 24 * time.Hour

// clients is the authority that signs the certificates which refit asks its callers for. cert-manager is that in a real
// installation.
type clients struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	file string // where the authority's certificate is
}

// newClients makes an authority, and writes its certificate to dir.
func newClients(dir string) (*clients, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the clients' authority: %w", err)
	}
	now := time.Now()
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "refit-client-ca"}, NotBefore: now.Add(-time.Minute),
		NotAfter: now.Add(clientsValid), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("make the clients' authority: %w", err)
	}
	c := &clients{key: key, cert: cert, file: filepath.Join(dir, "client-ca.crt")}
	return c, writePEM(c.file, "CERTIFICATE", der)
}

// sign returns a certificate with a DNS name, and its key, both in DER.
func (c *clients) sign(name string) (cert, key []byte, err error) {
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client's certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{name}, NotBefore: c.cert.NotBefore, NotAfter: c.cert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if cert, err = x509.CreateCertificate(rand.Reader, template, c.cert, &made.PublicKey, c.key); err != nil {
		return nil, nil, fmt.Errorf("make a client's certificate: %w", err)
	}
	key, err = x509.MarshalPKCS8PrivateKey(made)
	return cert, key, err
}

// managerArgs writes the managers' certificates to dir, and returns the arguments that have them shown.
func (c *clients) managerArgs(dir string) (map[lab.Program][]string, error) {
	args := map[lab.Program][]string{}
	for program, name := range clientNames {
		cert, key, err := c.sign(name)
		if err != nil {
			return nil, err
		}
		certFile, keyFile := filepath.Join(dir, string(program)+".crt"), filepath.Join(dir, string(program)+".key")
		if err := writePEM(certFile, "CERTIFICATE", cert); err != nil {
			return nil, err
		}
		if err := writePEM(keyFile, "PRIVATE KEY", key); err != nil {
			return nil, err
		}
		args[program] = []string{"--runtime-extension-client-cert-file=" + certFile, "--runtime-extension-client-key-file=" + keyFile}
	}
	return args, nil
}

// refitArgs are the arguments that have refit ask for certificates.
func (c *clients) refitArgs() []string {
	return []string{
		"--client-ca-file=" + c.file,
		"--client-names=" + clientNames[lab.CoreManager] + "," + clientNames[lab.ControlPlaneManager],
	}
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// Call calls a hook of refit as Cluster API does, with a certificate for the name, and returns the status of the answer. Without a
// name it shows none.
func (s *System) Call(name, hook string) (int, error) {
	cfg := &tls.Config{RootCAs: x509.NewCertPool()}
	cfg.RootCAs.AppendCertsFromPEM(s.bundle)
	if name != "" {
		cert, key, err := s.clients.sign(name)
		if err != nil {
			return 0, err
		}
		parsed, err := x509.ParsePKCS8PrivateKey(key)
		if err != nil {
			return 0, err
		}
		cfg.Certificates = []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: parsed}}
	}
	transport := &http.Transport{TLSClientConfig: cfg}
	defer transport.CloseIdleConnections()
	r, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Post(
		"https://"+s.hooks+"/hooks.runtime.cluster.x-k8s.io/v1alpha1/"+hook, "application/json", strings.NewReader("{}"))
	if err != nil {
		return 0, err
	}
	return r.StatusCode, r.Body.Close()
}

// ManagerName is the name for which refit answers Cluster API's core manager.
func ManagerName() string { return clientNames[lab.CoreManager] }
