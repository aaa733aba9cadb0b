package cli

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node/keytest"
)

func TestAgentSigningKeys(t *testing.T) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	for name, text := range map[string][]byte{
		"of ssh-keygen": keytest.PEM(t, private, ""), "of openssl": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	} {
		key, err := parseSigningKey(text)
		require.NoError(t, err, name)
		assert.Equal(t, private, key, name)
	}
	ecdsaKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	for want, text := range map[string][]byte{
		"has a passphrase": keytest.PEM(t, private, "secret"), "can't be read": []byte("secret"), "is not an Ed25519 key": keytest.PEM(t, ecdsaKey, ""),
	} {
		_, err := parseSigningKey(text)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
	}
}
