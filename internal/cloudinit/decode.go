// Package cloudinit knows how cloud-init reads what the kubeadm bootstrap provider hands to it, so that a file means the
// same on a running node as on a new one.
package cloudinit

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxDecoded bounds what a file may unpack to, in bytes, so that a small archive can't fill the memory.
const maxDecoded = 32 << 20

// Decode undoes the encoding of a file of write_files. It knows all of cloud-init's names for encodings. Its errors say
// nothing of the content.
func Decode(encoding string, raw []byte) ([]byte, error) {
	switch encoding {
	case "", "text/plain":
		return raw, nil
	case "b64", "base64":
		return unbase64(raw)
	case "gz", "gzip":
		return Gunzip(raw)
	case "gz+b64", "gz+base64", "gzip+b64", "gzip+base64":
		packed, err := unbase64(raw)
		if err != nil {
			return nil, err
		}
		return Gunzip(packed)
	default:
		return nil, fmt.Errorf("unknown encoding %q", encoding)
	}
}

// unbase64 ignores white space, as cloud-init does.
func unbase64(raw []byte) ([]byte, error) {
	decoded, err := base64.StdEncoding.AppendDecode(nil, bytes.Join(bytes.Fields(raw), nil))
	if err != nil {
		return nil, errors.New("the content is not valid base64")
	}
	return decoded, nil
}

// Check returns the error that Decode returns, without holding what is unpacked in memory.
func Check(encoding string, raw []byte) error {
	switch encoding {
	case "gz", "gzip":
		return gunzip(io.Discard, raw)
	case "gz+b64", "gz+base64", "gzip+b64", "gzip+base64":
		packed, err := unbase64(raw)
		if err != nil {
			return err
		}
		return gunzip(io.Discard, packed)
	default:
		_, err := Decode(encoding, raw)
		return err
	}
}

// Gunzip unpacks gzip.
func Gunzip(raw []byte) ([]byte, error) {
	plain := bytes.NewBuffer([]byte{}) // that of an empty file is not nil
	if err := gunzip(plain, raw); err != nil {
		return nil, err
	}
	return plain.Bytes(), nil
}

// gunzip unpacks gzip to w, of which it writes one byte more than it may have at most.
func gunzip(w io.Writer, raw []byte) error {
	r, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return errors.New("the content is not valid gzip")
	}
	n, err := io.Copy(w, io.LimitReader(r, maxDecoded+1))
	switch {
	case err != nil:
		return errors.New("the content is not valid gzip")
	case n > maxDecoded:
		return fmt.Errorf("the content is larger than %d MiB when unpacked", maxDecoded>>20)
	default:
		return nil
	}
}

// Verbatim returns an error that says why cloud-init would lay down other bytes than plain content, or nil.
func Verbatim(content string) error {
	for _, mark := range []string{"{{", "{%", "{#"} {
		if strings.Contains(content, mark) {
			return errors.New("the content has a Jinja expression, which cloud-init renders on a new machine only; write it in base64 to have it as it is")
		}
	}
	if strings.ContainsRune(content, '\r') {
		return errors.New("the content has carriage returns, which cloud-init's YAML changes on a new machine; write it in base64 to have it as it is")
	}
	return nil
}

// LiteralBlock returns plain content as it comes out of the YAML literal block in which the bootstrap provider hands it
// to cloud-init: it ends with exactly one newline.
func LiteralBlock(content []byte) []byte {
	trimmed := bytes.TrimRight(content, "\n")
	if len(trimmed) == 0 {
		return nil
	}
	return append(bytes.Clone(trimmed), '\n')
}
