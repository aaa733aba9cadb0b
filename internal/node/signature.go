package node

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// AgentStatement is what is signed of an agent.
type AgentStatement struct {
	// OS and Architecture are GOOS and GOARCH.
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	// Version is the agent's, for people.
	Version string `json:"version"`
	// RollbackIndex is raised when agents that were signed before must not run any more, since they can be attacked. A gate that has
	// seen one refuses agents with a lower one.
	RollbackIndex int64 `json:"rollbackIndex"`
	// SHA256 is the digest of the binary, in hex.
	SHA256 string `json:"sha256"`
}

// AgentSignature is a statement about an agent, and who says so. It is in the file of the agent's name with ".sig" behind it.
type AgentSignature struct {
	AgentStatement
	// Signature is made with Ed25519.
	Signature []byte `json:"signature"`
}

// maxSignature bounds a file of one.
const maxSignature = 4 << 10

var (
	plainWord = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+~-]{0,99}$`)
	hexDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// message is what a signature is of. No field has the character that separates them, and nothing else that is signed begins so.
func (s AgentStatement) message() ([]byte, error) {
	for _, word := range []string{s.OS, s.Architecture, s.Version} {
		if !plainWord.MatchString(word) {
			return nil, fmt.Errorf("%.100q can't be signed as a system, an architecture or a version", word)
		}
	}
	if !hexDigest.MatchString(s.SHA256) || s.RollbackIndex < 0 {
		return nil, errors.New("the digest is not a SHA-256 in hex, or the rollback index is negative")
	}
	return fmt.Appendf(nil, "refit-agent-v1\x00%s\x00%s\x00%s\x00%d\x00%s", s.OS, s.Architecture, s.Version, s.RollbackIndex, s.SHA256), nil
}

// SignAgent signs a statement.
func SignAgent(key ed25519.PrivateKey, s AgentStatement) (AgentSignature, error) {
	message, err := s.message()
	if err != nil {
		return AgentSignature{}, err
	}
	return AgentSignature{AgentStatement: s, Signature: ed25519.Sign(key, message)}, nil
}

// Verify returns an error unless one of the keys has signed the statement.
func (s AgentSignature) Verify(signers []ed25519.PublicKey) error {
	message, err := s.message()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(signers, func(k ed25519.PublicKey) bool { return ed25519.Verify(k, message, s.Signature) }) {
		return errors.New("the agent's signature is by none of the keys that are trusted")
	}
	return nil
}

// ParseAgentSignature reads a signature. It verifies nothing.
func ParseAgentSignature(data []byte) (AgentSignature, error) {
	var s AgentSignature
	if len(data) > maxSignature {
		return s, errors.New("it is too long for a signature")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil || d.More() {
		return s, errors.New("it is not a signature as `refit agent sign` makes it")
	}
	return s, nil
}

// ParseAgentSigners reads public keys, one a line, as ssh-keygen writes them. Empty lines and those that begin with # don't count.
func ParseAgentSigners(data []byte) ([]ed25519.PublicKey, error) {
	var keys []ed25519.PublicKey
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := parsePublicKey(line)
		if err != nil {
			return nil, fmt.Errorf("line %d %w", n, err)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New("there is no key in it")
	}
	return keys, nil
}

// parsePublicKey reads a line as ssh-keygen writes it: a type, a key in base64 and a comment. It is here, and not of the SSH client's
// library, since nothing else of that is for the agent.
func parsePublicKey(line string) (ed25519.PublicKey, error) {
	errNotOne := errors.New("is not a public key as ssh-keygen writes it")
	words := strings.Fields(line)
	if len(words) < 2 {
		return nil, errNotOne
	}
	blob, err := base64.StdEncoding.Strict().DecodeString(words[1])
	if err != nil {
		return nil, errNotOne
	}
	kind, rest, ok := cutString(blob)
	if !ok || string(kind) != words[0] {
		return nil, errNotOne
	}
	if words[0] != "ssh-ed25519" {
		return nil, fmt.Errorf("has a key of type %.40q, which can't sign agents; want ssh-ed25519", words[0])
	}
	key, rest, ok := cutString(rest)
	if !ok || len(rest) > 0 || len(key) != ed25519.PublicKeySize {
		return nil, errNotOne
	}
	return key, nil
}

// cutString takes a string off the wire format of SSH (RFC 4251, section 5).
func cutString(data []byte) (s, rest []byte, ok bool) {
	if len(data) < 4 {
		return nil, nil, false
	}
	length := uint64(binary.BigEndian.Uint32(data))
	if data = data[4:]; length > uint64(len(data)) {
		return nil, nil, false
	}
	return data[:length], data[length:], true
}
