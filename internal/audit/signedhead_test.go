package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// headKey is made of nothing, so that tests are the same each time.
var headKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

func public() ed25519.PublicKey { return headKey.Public().(ed25519.PublicKey) }

func signedTip(l *Log) SignedHead {
	tip := l.Tip()
	tip.Log = "refit-a"
	return tip.Sign(headKey)
}

func TestSignedHead(t *testing.T) {
	h := SignedHead{Log: "a", File: "f", Instance: "i", Seq: 3, Hash: "00", Time: start}.Sign(headKey)
	require.NoError(t, h.Verify(public()))
	text, err := json.Marshal(h)
	require.NoError(t, err)
	var again SignedHead
	require.NoError(t, json.Unmarshal(text, &again))
	require.NoError(t, again.Verify(public()), "also when it was written and read")
	again.Time = h.Time.In(time.FixedZone("", 3600))
	require.NoError(t, again.Verify(public()), "it is the same time")
	for name, change := range map[string]func(*SignedHead){
		"log": func(h *SignedHead) { h.Log = "b" }, "file": func(h *SignedHead) { h.File = "" }, "instance": func(h *SignedHead) { h.Instance = "j" },
		"seq": func(h *SignedHead) { h.Seq++ }, "hash": func(h *SignedHead) { h.Hash = "01" }, "time": func(h *SignedHead) { h.Time = h.Time.Add(1) },
		"signature": func(h *SignedHead) { h.Signature = nil },
	} {
		changed := h
		change(&changed)
		require.Error(t, changed.Verify(public()), name)
	}
	require.Error(t, h.Verify(nil))
}

func TestParsePublicKey(t *testing.T) {
	der, err := x509.MarshalPKIXPublicKey(public())
	require.NoError(t, err)
	for _, text := range []string{
		string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), base64.StdEncoding.EncodeToString(public()) + "\n",
	} {
		key, err := ParsePublicKey([]byte(text))
		require.NoError(t, err)
		require.Equal(t, public(), key)
	}
	for _, text := range []string{"", "AAAA", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"} {
		_, err := ParsePublicKey([]byte(text))
		require.Error(t, err)
	}
}

func TestParseHeads(t *testing.T) {
	h := SignedHead{Log: "a", Seq: 3, Hash: "00", Time: start}.Sign(headKey)
	text, err := json.Marshal(h)
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		text string
		want int
	}{
		"one":                        {string(text), 1},
		"a ConfigMap":                {fmt.Sprintf("apiVersion: v1\ndata:\n  a.json: '%s'\n  b.json: '%s'\n  public-key.pem: k\nkind: ConfigMap\n", text, text), 2},
		"with one that is none":      {fmt.Sprintf("data: {a.json: '%s', b.json: '{'}", text), 1},
		"a ConfigMap without any":    {"data: {public-key.pem: k}", 0},
		"nothing":                    {"", 0},
		"something else":             {"hello", 0},
		"a list":                     {"[1]", 0},
		"a ConfigMap of another use": {"data: {a.json: '{\"x\": 1}'}", 0},
	} {
		t.Run(name, func(t *testing.T) {
			heads, err := ParseHeads([]byte(tc.text))
			require.Len(t, heads, tc.want)
			require.Equal(t, tc.want == 0, err != nil)
		})
	}
}

// TestCompare has a log of several files, and each of its entries as the one of which the head was published.
func TestCompare(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := open(t, path, Options{MaxSize: 600})
	var all []SignedHead
	for range 9 {
		add(t, l, 1)
		all = append(all, signedTip(l))
	}
	names, err := filesBefore(path)
	require.NoError(t, err)
	require.Greater(t, len(names), 2)
	for _, h := range all {
		what, err := l.Compare(h)
		require.NoError(t, err)
		require.Empty(t, what, "entry %d", h.Seq)
		h.Hash = all[0].Hash[:63] + "x"
		what, err = l.Compare(h)
		require.NoError(t, err)
		require.Equal(t, LostReplaced, what)
	}
	h := all[8]
	h.Seq++
	what, err := l.Compare(h)
	require.NoError(t, err)
	require.Equal(t, LostTruncated, what)

	require.NoError(t, os.Remove(names[0]))
	what, err = l.Compare(all[0])
	require.NoError(t, err)
	require.Equal(t, LostReplaced, what, "the file with the entry is not there")
	require.NoError(t, os.WriteFile(names[1], []byte("hello\n"), 0o600))
	_, err = l.Compare(all[3])
	require.Error(t, err)
}

// A head is of the line of an entry: what an interrupted write leaves behind the line does not change it.
func TestATornWriteChangesNoHead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := open(t, path, Options{})
	add(t, l, 2)
	h := signedTip(l)
	require.NoError(t, l.Close())
	tear(t, path, `{"seq":3`)
	l = open(t, path, Options{})
	require.Equal(t, h.Hash, l.Tip().Hash)
	add(t, l, 1)
	what, err := l.Compare(h)
	require.NoError(t, err)
	require.Empty(t, what)
	report, err := Published{Heads: []SignedHead{h}, Key: public()}.Verify(File{"log", bytes.NewReader(read(t, path))})
	require.NoError(t, err)
	require.Len(t, report.Heads, 1)
}

func TestPublishedVerify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := open(t, path, Options{})
	add(t, l, 3)
	h := signedTip(l)
	data := read(t, path)
	second := data[bytes.IndexByte(data, '\n')+1:]
	for name, tc := range map[string]struct {
		p    Published
		data []byte
		want string
	}{
		"all of it":             {Published{Heads: []SignedHead{h}}, data, ""},
		"by its name":           {Published{Heads: []SignedHead{h}, Log: "refit-a"}, data, ""},
		"the rest of it":        {Published{Heads: []SignedHead{h}}, second, ""},
		"another name":          {Published{Heads: []SignedHead{h}, Log: "refit-b"}, data, "name the log, of: refit-a"},
		"no heads":              {Published{}, data, "no head is of this log"},
		"nothing":               {Published{Heads: []SignedHead{h}}, nil, "no head is of this log"},
		"nothing, by its name":  {Published{Heads: []SignedHead{h}, Log: "refit-a"}, nil, "was cut off: it ends with entry 0"},
		"broken":                {Published{Heads: []SignedHead{h}}, []byte("hello\n"), "is no entry"},
		"before what was given": {Published{Heads: []SignedHead{SignedHead{Log: "refit-a", Instance: "refit-0", Seq: 1, Hash: "00"}.Sign(headKey)}}, second, "give the files before it"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.p.Key = public()
			_, err := tc.p.Verify(File{"log", bytes.NewReader(tc.data)})
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestOldFilesAreRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l := open(t, path, Options{MaxSize: 1, Keep: 2})
	add(t, l, 6)
	names, err := filesBefore(path)
	require.NoError(t, err)
	require.Equal(t, []string{numbered(path, 4), numbered(path, 5)}, names)
	require.NoError(t, l.Close())
	l = open(t, path, Options{MaxSize: 1})
	add(t, l, 3)
	names, err = filesBefore(path)
	require.NoError(t, err)
	require.Len(t, names, 5, "by default all are kept")

	// One that can't be removed stops nothing.
	require.NoError(t, os.Remove(names[0]))
	require.NoError(t, os.MkdirAll(filepath.Join(names[0], "full"), 0o700))
	l.opts.Keep = 1
	add(t, l, 1)
}
