package audit

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// SignedHead tells how far a log had come at a time. Kept where who can write the log can't, it shows that a log was cut off, or
// replaced by another one that holds together too.
type SignedHead struct {
	// Log is the name of the log: of the pod, or of the host, that writes it.
	Log string `json:"log"`
	// File is where it is there.
	File string `json:"file"`
	// Instance is the process that has written the entry.
	Instance string `json:"instance"`
	// Seq is that of the last entry.
	Seq int64 `json:"seq"`
	// Hash is the SHA-256, in hex, of the entry's line with its newline.
	Hash string    `json:"hash"`
	Time time.Time `json:"time"`
	// Signature is made with Ed25519, over all of the above.
	Signature []byte `json:"signature"`
}

// HeadsKey ends the key of a signed head in the data of a ConfigMap.
const HeadsKey = ".json"

// PublicKeyKey is the key of the public key, in PEM, in the data of the ConfigMap and of refit's Secret.
const PublicKeyKey = "public-key.pem"

// signed are the bytes that a signature is over. The first line keeps the key from signing anything that means something else.
func (h SignedHead) signed() []byte {
	h.Signature, h.Time = nil, h.Time.UTC()
	data, err := json.Marshal(h)
	if err != nil {
		return nil // a time out of all range: no signature is over nothing
	}
	return append([]byte("refit audit log head v1\n"), data...)
}

// Sign returns the head with a signature.
func (h SignedHead) Sign(key ed25519.PrivateKey) SignedHead {
	h.Time = h.Time.UTC()
	h.Signature = ed25519.Sign(key, h.signed())
	return h
}

// Verify returns an error unless the head is signed by the key.
func (h SignedHead) Verify(key ed25519.PublicKey) error {
	if data := h.signed(); len(data) == 0 || len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, data, h.Signature) {
		return fmt.Errorf("the head of log %q, entry %d, is not signed by the key: it was changed, or another key has signed it", h.Log, h.Seq)
	}
	return nil
}

// HeadError says that a log is not the one of which a head was published.
type HeadError struct {
	Head SignedHead
	// What is LostTruncated or LostReplaced.
	What string
	// End is the Seq of the last entry of the log.
	End int64
}

// Error implements error.
func (e *HeadError) Error() string {
	at := e.Head.Time.UTC().Format(time.RFC3339)
	if e.What == LostTruncated {
		return fmt.Sprintf("the log was cut off: it ends with entry %d, and at %s it had %d", e.End, at, e.Head.Seq)
	}
	return fmt.Sprintf("the log was replaced: its entry %d is not the one that it had at %s", e.Head.Seq, at)
}

// Published are heads that a log is compared with.
type Published struct {
	Heads []SignedHead
	// Key is the one by which those that count have to be signed.
	Key ed25519.PublicKey
	// Log is the name of the log. Empty: the heads count that an instance has written of which the log has entries.
	Log string
}

// Verify is the function Verify for a log of which heads were published. The error is a *HeadError if the log holds together and is not
// the one that a head is of. The Report has the heads that it was compared with.
func (p Published) Verify(files ...File) (Report, error) {
	sums, instances := map[int64]string{}, map[string]bool{}
	for _, h := range p.Heads {
		sums[h.Seq] = ""
	}
	r, err := readFiles(files, func(c *chain) {
		instances[c.instance] = true
		if _, ok := sums[c.seq]; ok {
			sums[c.seq] = c.sum()
		}
	})
	if err != nil {
		return r, err
	}
	var names []string
	for _, h := range p.Heads {
		names = append(names, h.Log)
		if p.Log == "" && !instances[h.Instance] || p.Log != "" && p.Log != h.Log {
			continue
		}
		if err := errors.Join(h.Verify(p.Key), compareHead(h, r, sums[h.Seq])); err != nil {
			return r, err
		}
		r.Heads = append(r.Heads, h)
	}
	if len(r.Heads) == 0 {
		slices.Sort(names)
		return r, fmt.Errorf("no head is of this log, so it can't be told whether all of it is there; name the log, of: %s",
			strings.Join(slices.Compact(names), ", "))
	}
	return r, nil
}

// compareHead compares a log with its head. sum is that of the entry that the head is of.
func compareHead(h SignedHead, r Report, sum string) error {
	switch {
	case r.Head.Seq < h.Seq:
		return &HeadError{Head: h, What: LostTruncated, End: r.Head.Seq}
	case h.Seq < 1 || h.Seq < r.First:
		return fmt.Errorf("the log begins with entry %d, and its head is of entry %d; give the files before it as well", r.First, h.Seq)
	case sum != h.Hash:
		return &HeadError{Head: h, What: LostReplaced, End: r.Head.Seq}
	}
	return nil
}

// Tip returns the head of the log, without a name and a signature. Seq is 0 if there is no entry.
func (l *Log) Tip() SignedHead {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tip()
}

func (l *Log) tip() SignedHead {
	return SignedHead{File: l.path, Instance: l.chain.instance, Seq: l.chain.seq, Hash: l.chain.sum(), Time: l.clock.Now().UTC()}
}

// Compare returns what has happened to the log since its head was published: LostTruncated, LostReplaced, or nothing. It reads one file.
func (l *Log) Compare(h SignedHead) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch tip := l.tip(); {
	case tip.Seq < h.Seq:
		return LostTruncated, nil
	case tip.Seq == h.Seq:
		if tip.Hash != h.Hash {
			return LostReplaced, nil
		}
		return "", nil
	}
	names, err := filesBefore(l.path)
	if err != nil {
		return "", err
	}
	// A file is named by the last entry in it.
	i, _ := slices.BinarySearch(names, numbered(l.path, h.Seq))
	var in io.Reader = io.NewSectionReader(l.file, 0, l.size)
	if i < len(names) {
		file, err := os.Open(names[i])
		if err != nil {
			return "", err
		}
		defer file.Close()
		in = file
	}
	var c chain
	sum := ""
	err = c.read(in, func(Entry) {
		if c.seq == h.Seq {
			sum = c.sum()
		}
	})
	if err == nil && sum != h.Hash {
		return LostReplaced, nil
	}
	return "", err
}

// ParseHeads reads signed heads: one as JSON, or those in a ConfigMap, as kubectl get -o yaml or -o json shows it.
func ParseHeads(data []byte) ([]SignedHead, error) {
	var one SignedHead
	if err := yaml.UnmarshalStrict(data, &one); err == nil && one.Seq > 0 {
		return []SignedHead{one}, nil
	}
	var configMap struct {
		Data map[string]string `json:"data"`
	}
	if err := yaml.Unmarshal(data, &configMap); err != nil {
		return nil, fmt.Errorf("it is neither a head nor a ConfigMap: %w", err)
	}
	var heads []SignedHead
	for _, key := range slices.Sorted(maps.Keys(configMap.Data)) {
		if !strings.HasSuffix(key, HeadsKey) {
			continue
		}
		var h SignedHead // what is none is the head of no log
		if err := yaml.UnmarshalStrict([]byte(configMap.Data[key]), &h); err == nil {
			heads = append(heads, h)
		}
	}
	if len(heads) == 0 {
		return nil, errors.New("there is no head in it")
	}
	return heads, nil
}

// ParsePublicKey reads a public key, in PEM or as refit logs it: its 32 bytes in base64.
func ParsePublicKey(data []byte) (ed25519.PublicKey, error) {
	if block, _ := pem.Decode(data); block != nil {
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if public, ok := key.(ed25519.PublicKey); err == nil && ok {
			return public, nil
		}
		return nil, errors.New("it is not the public key of Ed25519 in PEM")
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(data)))
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, errors.New("it is neither a public key in PEM nor 32 bytes in base64")
	}
	return key, nil
}
