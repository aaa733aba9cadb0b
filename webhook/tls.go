package webhook

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// ClientCA returns an option for the TLS configuration by which clients must show a certificate that an authority in the
// file has signed. The file is read again when it changes, which counts for the connections made from then on. ctx bounds the
// watch.
func ClientCA(ctx context.Context, file string) (func(*tls.Config), error) {
	ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", file)
	if err != nil {
		return nil, fmt.Errorf("read the client CA: %w", err)
	}
	go ca.Run(ctx, 1)
	return func(cfg *tls.Config) {
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
		// A session that is resumed would carry over what was verified once, by an authority that may be gone since.
		cfg.SessionTicketsDisabled = true
		base := cfg
		cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			options, ok := ca.VerifyOptions()
			if !ok {
				return nil, errors.New("the client CA can't be read")
			}
			current := base.Clone()
			current.GetConfigForClient = nil
			current.ClientCAs = options.Roots
			return current, nil
		}
	}, nil
}

// selfSignedFor is how long self-signed certificates are valid. They are for trying things out.
const selfSignedFor = 30 * 24 * time.Hour

// WriteSelfSigned makes an authority and a serving certificate for the hosts, writes tls.crt and tls.key to dir, and
// returns the authority's certificate in PEM, which is the CA bundle for an ExtensionConfig.
func WriteSelfSigned(dir string, hosts []string, now time.Time) ([]byte, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "refit self-signed"},
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(selfSignedFor),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return nil, fmt.Errorf("make the authority's certificate: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "refit"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		return nil, fmt.Errorf("make the serving certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the key: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "tls.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}), nil
}
