package cloudinit_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/cloudinit"
)

func gzipped(t *testing.T, plain []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(plain)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// TestCheckSaysWhatDecodeSays: one holds what is unpacked, and the other one does not.
func TestCheckSaysWhatDecodeSays(t *testing.T) {
	bomb := gzipped(t, make([]byte, 32<<20+1))
	packed := gzipped(t, []byte("x"))
	for name, tc := range map[string]struct {
		encoding string
		raw      []byte
		want     string
	}{
		"plain":          {"", []byte("x"), ""},
		"gzip":           {"gzip", packed, ""},
		"an empty file":  {"gz", gzipped(t, nil), ""},
		"both":           {"gz+b64", []byte(base64.StdEncoding.EncodeToString(packed)), ""},
		"cut off":        {"gzip", packed[:len(packed)-1], "not valid gzip"},
		"not gzip":       {"gzip", []byte("x"), "not valid gzip"},
		"not base64":     {"gz+b64", []byte("%"), "not valid base64"},
		"a bomb":         {"gzip", bomb, "larger than 32 MiB when unpacked"},
		"an unknown one": {"rot13", nil, "unknown encoding"},
		"base64 alone":   {"base64", []byte("%"), "not valid base64"},
	} {
		t.Run(name, func(t *testing.T) {
			plain, err := cloudinit.Decode(tc.encoding, tc.raw)
			checked := cloudinit.Check(tc.encoding, tc.raw)
			require.Equal(t, err, checked)
			if tc.want != "" {
				require.ErrorContains(t, err, tc.want)
				return
			}
			require.NoError(t, err)
			require.NotNil(t, plain)
		})
	}
}
