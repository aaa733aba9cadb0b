package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
)

// localName is a name that kubeadm puts into each server and peer certificate of etcd.
const localName = "localhost"

// Certificate returns the certificate that a member shows at a URL of this node, to whom connects now. One that etcd's authority has not
// signed is an error.
func (c *Client) Certificate(ctx context.Context, at string) (*x509.Certificate, error) {
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("where etcd listens is not an https URL")
	}
	trust := c.trust.Clone()
	trust.ServerName = localName
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	conn, err := (&tls.Dialer{Config: trust}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		if certificate := (*tls.CertificateVerificationError)(nil); errors.As(err, &certificate) {
			return nil, errors.New("etcd's authority has not signed the certificate that the member serves for " + localName)
		}
		return nil, errors.New("the member takes no TLS connection at " + u.Host)
	}
	defer func() { _ = conn.Close() }()
	tlsConn, ok := conn.(*tls.Conn)
	if !ok {
		return nil, errors.New("the member does not speak TLS")
	}
	return tlsConn.ConnectionState().PeerCertificates[0], nil
}
