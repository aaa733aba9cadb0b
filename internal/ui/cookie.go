package ui

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
)

// tokenCookie has the bearer token of whoever has logged in, sealed. By its name, browsers take it from this host alone and send it over TLS alone. They send it to
// other ports of the host, too: what listens there can't take the token out of it.
const tokenCookie = "__Host-refit-ui" //nolint:gosec // a name

// maxToken is what fits into a cookie when it is sealed, in bytes.
const maxToken = 2900

// sealer seals tokens by a secret that all replicas have.
type sealer struct {
	secret func() ([]byte, error)
}

func (s sealer) aead() (cipher.AEAD, error) {
	secret, err := s.secret()
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Key(sha256.New, secret, nil, tokenCookie, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal returns the cookie for a token.
func (s sealer) seal(token string) (*http.Cookie, error) {
	aead, err := s.aead()
	if err != nil {
		return nil, err
	}
	sealed := base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, []byte(token), []byte(tokenCookie)))
	return &http.Cookie{Name: tokenCookie, Value: sealed, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode}, nil
}

// open returns the token of a request's cookie. It is not ok without one that this server, or another replica, has made.
func (s sealer) open(r *http.Request) (token string, ok bool, err error) {
	cookie, err := r.Cookie(tokenCookie)
	if errors.Is(err, http.ErrNoCookie) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	sealed, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil {
		return "", false, nil //nolint:nilerr // it is no cookie of ours
	}
	aead, err := s.aead()
	if err != nil {
		return "", false, err
	}
	text, err := aead.Open(nil, nil, sealed, []byte(tokenCookie))
	if err != nil {
		return "", false, nil //nolint:nilerr // of an earlier secret, or of somebody else
	}
	return string(text), true, nil
}

// noToken reports whether a text can be no bearer token.
func noToken(text string) bool {
	return strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' })
}
