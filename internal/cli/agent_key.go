package cli

import (
	"crypto/ed25519"
	"errors"

	"golang.org/x/crypto/ssh"
)

// parseSigningKey reads an Ed25519 private key in PEM, as ssh-keygen or openssl writes it. Errors don't repeat it.
func parseSigningKey(data []byte) (ed25519.PrivateKey, error) {
	key, err := ssh.ParseRawPrivateKey(data)
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		return nil, errors.New("the signing key has a passphrase; use one without")
	case err != nil:
		return nil, errors.New("the signing key can't be read; it must be PEM, as ssh-keygen -t ed25519 writes it")
	}
	switch key := key.(type) {
	case ed25519.PrivateKey:
		return key, nil
	case *ed25519.PrivateKey:
		return *key, nil
	}
	return nil, errors.New("the signing key is not an Ed25519 key; make one with ssh-keygen -t ed25519")
}
