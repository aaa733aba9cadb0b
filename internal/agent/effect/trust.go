package effect

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/disruption"
)

var (
	// trustDirs are where certificates of authorities are put for the program that puts the node's bundle together.
	trustDirs = []string{"/usr/local/share/ca-certificates", "/etc/pki/ca-trust/source/anchors"}
	// TrustBundles are where distributions have the authorities that a node trusts, in one file.
	TrustBundles = []string{
		"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
	}
	// trustSources are what else the bundle is put together from.
	trustSources = []string{"/usr/share/ca-certificates", "/usr/share/pki", "/etc/pki/ca-trust/source", "/etc/pki/trust"}
)

// trustDepth is how deep directories of certificates are looked through.
const trustDepth = 4

func updatesTrust(actions []disruption.Action) bool {
	return slices.ContainsFunc(actions, func(a disruption.Action) bool { return a.Type == disruption.TrustStoreUpdate })
}

// noteTrust notes which certificates files have held before.
func (e Effects) noteTrust(changes []Change, n *Noted) {
	for _, c := range of(changes, trustDirs...) {
		if updatesTrust(c.Actions) {
			n.TrustFiles = append(n.TrustFiles, c.Path)
			for id := range certificates(c.Before) {
				n.Trusted = append(n.Trusted, id)
			}
		}
	}
}

// verifyTrust returns an error if the bundle lacks a certificate of the files, or still has one that they held before and nothing names any
// more.
func (e Effects) verifyTrust(n Noted) ([]string, error) {
	if len(n.TrustFiles) == 0 {
		return nil, nil
	}
	bundle, where, err := e.bundle()
	if err != nil {
		return nil, err
	}
	if where == "" {
		return []string{"where this node has the authorities that it trusts is not known, so it was not looked whether the certificates are among them"}, nil
	}
	untrusted, err := e.untrusted(n, bundle, where)
	if err != nil {
		return nil, err
	}
	kept, err := e.keptTrust(n, bundle, where)
	return nil, errors.Join(append(untrusted, append(kept, err)...)...)
}

// untrusted returns an error for each certificate of the files that the bundle lacks.
func (e Effects) untrusted(n Noted, bundle map[string]string, where string) (wrong []error, err error) {
	for _, file := range n.TrustFiles {
		data, _, err := e.Host.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for id, name := range certificates(data) {
			if _, ok := bundle[id]; !ok {
				wrong = append(wrong, fmt.Errorf("%s holds a certificate (%s) that is not in %s: does the program that makes that read a file of this "+
					"name? update-ca-certificates takes those that end in .crt", file, name, where))
			}
		}
	}
	return wrong, nil
}

// keptTrust returns an error for each certificate of before that the bundle still has, and no file names.
func (e Effects) keptTrust(n Noted, bundle map[string]string, where string) (wrong []error, err error) {
	for _, id := range n.Trusted {
		name, still := bundle[id]
		if !still {
			continue
		}
		named, err := e.namesCertificate(id)
		if err != nil {
			return nil, err
		}
		if !named {
			wrong = append(wrong, fmt.Errorf("a certificate (%s) whose file is gone is still in %s", name, where))
		}
	}
	return wrong, nil
}

// bundle returns the certificates that the node trusts, and the file that holds them, or "" if the node has none that is known.
func (e Effects) bundle() (map[string]string, string, error) {
	for _, file := range TrustBundles {
		data, state, err := e.Host.ReadFile(file)
		if err != nil {
			return nil, "", err
		}
		if state.Exists {
			return certificates(data), file, nil
		}
	}
	return nil, "", nil
}

// namesCertificate reports whether one of the files that the bundle is put together from holds a certificate.
func (e Effects) namesCertificate(id string) (bool, error) {
	for _, dir := range slices.Concat(trustDirs, trustSources) {
		if named, err := e.holds(dir, id, trustDepth); named || err != nil {
			return named, err
		}
	}
	return false, nil
}

func (e Effects) holds(dir, id string, depth int) (bool, error) {
	entries, err := e.Host.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, entry := range entries {
		p := path.Join(dir, entry.Name())
		if entry.IsDir() {
			if depth == 0 {
				continue
			}
			if named, err := e.holds(p, id, depth-1); named || err != nil {
				return named, err
			}
			continue
		}
		data, _, err := e.Host.ReadFile(p)
		if err != nil {
			continue // what root can't read, such as a link to nowhere, is in no bundle
		}
		if _, ok := certificates(data)[id]; ok {
			return true, nil
		}
	}
	return false, nil
}

// certificates returns the subjects of those that a text in PEM, or a file in DER, holds, by their digests.
func certificates(data []byte) map[string]string {
	all := map[string]string{}
	add := func(der []byte) {
		if c, err := x509.ParseCertificate(der); err == nil {
			sum := sha256.Sum256(der)
			all[hex.EncodeToString(sum[:])] = strings.ToValidUTF8(c.Subject.String(), "?")
		}
	}
	if !bytes.Contains(data, []byte("-----BEGIN")) {
		add(data)
		return all
	}
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" || block.Type == "TRUSTED CERTIFICATE" {
			add(block.Bytes)
		}
	}
	return all
}
