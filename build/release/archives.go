package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// checksums is the file that has those of all others, as sha256sum -c reads it.
const checksums = "checksums.txt"

// platform is an operating system and an architecture that the command is for.
type platform struct{ os, arch string }

var platforms = []platform{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
}

func (p platform) program() string { return "refit-" + p.os + "-" + p.arch }

// archive is what somebody downloads.
type archive struct {
	platform
	name, program, sha256 string
}

// file is one of an archive.
type file struct {
	name string
	mode int64
	data []byte
}

// archives writes the command for each platform, with the license.
func (o options) archives(dir string, at time.Time) ([]archive, error) {
	license, err := os.ReadFile(o.license)
	if err != nil {
		return nil, err
	}
	var all []archive
	for _, p := range platforms {
		program, err := os.ReadFile(filepath.Join(o.programs, p.program()))
		if err != nil {
			return nil, fmt.Errorf("the command for %s/%s: %w", p.os, p.arch, err)
		}
		a := archive{platform: p, name: p.program() + ".tar.gz", program: "refit"}
		pack := tarball
		if p.os == "windows" {
			a.name, a.program, pack = p.program()+".zip", "refit.exe", zipped
		}
		data, err := pack([]file{{"LICENSE", 0o644, license}, {a.program, 0o755, program}}, at)
		if err != nil {
			return nil, err
		}
		a.sha256 = digest(data)
		if err := os.WriteFile(filepath.Join(dir, a.name), data, 0o644); err != nil { //nolint:gosec // a release is for everybody
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// tarball packs files that nobody owns, all of one time.
func tarball(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out) // it has no time and no name
	w := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: at, Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(w.Close(), compressed.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func zipped(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		header.SetMode(os.FileMode(f.mode))
		entry, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := entry.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// sum writes the checksums of all files in a directory.
func sum(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var lines []byte
	for _, e := range slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.Name() == checksums }) {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		lines = fmt.Appendf(lines, "%s  %s\n", digest(data), e.Name())
	}
	return os.WriteFile(filepath.Join(dir, checksums), lines, 0o644) //nolint:gosec // a release is for everybody
}
