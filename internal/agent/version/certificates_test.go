package version

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// certificate returns one that has so much of a hundred hours left.
func (w *world) certificate(left time.Duration) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(w, err)
	to := w.clock.Now().Add(left)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: to.Add(-100 * time.Hour), NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(w, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func kubeconfigOf(cert string) string {
	return "users:\n- name: u\n  user: {client-certificate-data: " + base64.StdEncoding.EncodeToString([]byte(cert)) + "}\n"
}

func TestAged(t *testing.T) {
	const pki = "/etc/kubernetes/pki"
	const old, young = 49 * time.Hour, 51 * time.Hour
	for name, tc := range map[string]struct {
		prepare func(w *world)
		aged    string
		err     string
	}{
		"none":                    {},
		"all with more than half": {prepare: func(w *world) { w.Put(pki+"/etcd/server.crt", w.certificate(young)) }},
		"etcd's":                  {prepare: func(w *world) { w.Put(pki+"/etcd/server.crt", w.certificate(old)) }, aged: pki + "/etcd/server.crt"},
		"one that has ended":      {prepare: func(w *world) { w.Put(pki+"/etcd/peer.crt", w.certificate(-time.Hour)) }, aged: pki + "/etcd/peer.crt"},
		"the front proxy's": {prepare: func(w *world) {
			w.Put(pki+"/front-proxy-ca.key", "")
			w.Put(pki+"/front-proxy-client.crt", w.certificate(old))
		}, aged: pki + "/front-proxy-client.crt"},
		"of an authority elsewhere":          {prepare: func(w *world) { w.Put(pki+"/front-proxy-client.crt", w.certificate(old)) }},
		"an authority's own":                 {prepare: func(w *world) { w.Put(pki+"/ca.crt", w.certificate(old)) }},
		"that of nobody":                     {prepare: func(w *world) { w.Put(pki+"/other.crt", w.certificate(old)) }},
		"a kubeconfig's":                     {prepare: func(w *world) { w.Put("/etc/kubernetes/scheduler.conf", kubeconfigOf(w.certificate(old))) }, aged: "/etc/kubernetes/scheduler.conf"},
		"a kubeconfig's with more than half": {prepare: func(w *world) { w.Put("/etc/kubernetes/scheduler.conf", kubeconfigOf(w.certificate(young))) }},
		"the kubelet's, which it renews":     {prepare: func(w *world) { w.Put("/etc/kubernetes/kubelet.conf", kubeconfigOf(w.certificate(old))) }},
		"a kubeconfig with a file": {prepare: func(w *world) {
			w.Put("/etc/kubernetes/scheduler.conf", "users: [{user: {client-certificate: /a.pem}}]\n")
		}},
		"a kubeconfig that is none":  {prepare: func(w *world) { w.Put("/etc/kubernetes/scheduler.conf", "[") }, err: "it is not a kubeconfig"},
		"a certificate that is none": {prepare: func(w *world) { w.Put(pki+"/etcd/peer.crt", "x") }, err: "/etc/kubernetes/pki/etcd/peer.crt holds no certificate"},
		"a certificate that can't be decoded": {prepare: func(w *world) {
			w.Put(pki+"/etcd/peer.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
		}, err: "holds no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newControlPlane(t, newVersion)
			if tc.prepare != nil {
				tc.prepare(w)
			}
			aged, err := w.kind.aged(pki)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.aged, aged)
		})
	}
}
