package heads

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-refit/refit/internal/audit"
)

// KeyName is the name of the Secret with the key that signs heads.
const KeyName = "refit-audit-key"

const privateKeyKey = "private-key.pem"

// key returns the key that signs heads, and makes it if it is not there. Of several replicas that make one the first one's counts.
func (p *Publisher) key(ctx context.Context) (ed25519.PrivateKey, error) {
	secret, err := p.readKey(ctx)
	if apierrors.IsNotFound(err) {
		if secret, err = newKey(p.Namespace); err != nil {
			return nil, err
		}
		if err = p.Client.Create(ctx, secret); apierrors.IsAlreadyExists(err) {
			secret, err = p.readKey(ctx)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the key in Secret %s/%s: %w", p.Namespace, KeyName, err)
	}
	key, err := parseKey(secret.Data[privateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("the key in Secret %s/%s: %w; delete the Secret to have a new one made", p.Namespace, KeyName, err)
	}
	return key, nil
}

func (p *Publisher) readKey(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	return secret, p.Live.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: KeyName}, secret)
}

func newKey(namespace string) (*corev1.Secret, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}
	shown, err := publicPEM(public)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: KeyName},
		Type:       corev1.SecretTypeOpaque,
		Data: map[string][]byte{
			privateKeyKey:      pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
			audit.PublicKeyKey: shown,
		},
	}, err
}

func publicPEM(public ed25519.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), err
}

func parseKey(data []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New(privateKeyKey + " is not in PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, errors.New(privateKeyKey + " is not a key of Ed25519")
	}
	return key, nil
}
