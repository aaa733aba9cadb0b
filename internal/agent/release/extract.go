package release

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cavaliergopher/cpio"
)

const (
	// maxEntries bounds how many entries of an archive are looked at. A release of Kubernetes has a few dozen.
	maxEntries = 100_000
	// maxUnpacked bounds what is read of an archive once it is unpacked, in bytes.
	maxUnpacked = 2 * maxSize
)

// entry is a regular file of an archive.
type entry struct {
	name string
	mode int64
	size int64
	data io.Reader
}

// program returns which program an entry is, or "". What has its name and can't be run is something else, a completion for shells for
// example.
func (e entry) program() string {
	if name := path.Base(e.name); slices.Contains(Programs, name) && e.mode&0o111 != 0 {
		return name
	}
	return ""
}

// bounded fails when more than left bytes are read.
type bounded struct {
	io.Reader
	left int64
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("it has more than %d GiB when it is unpacked", int64(maxUnpacked)>>30)
	}
	return n, err
}

// readTar calls each for the regular files of a tar archive, compressed by gzip or not. Nothing of it is written by the names that it
// has; an archive with one that leads out of it is refused all the same.
func readTar(r io.Reader, each func(e entry) error) error {
	in := bufio.NewReader(r)
	r = in
	if magic, err := in.Peek(2); err == nil && bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(in)
		if err != nil {
			return fmt.Errorf("it is not gzip: %w", err)
		}
		r = unpacked
	}
	all := tar.NewReader(&bounded{r, maxUnpacked})
	for range maxEntries {
		h, err := all.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("it is not a whole tar archive: %w", err)
		}
		if slices.Contains(strings.Split(h.Name, "/"), "..") {
			return errors.New("it has a name with .. in it, which leads out of it")
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := each(entry{name: h.Name, mode: h.Mode, size: h.Size, data: all}); err != nil {
			return err
		}
	}
	return fmt.Errorf("it has more than %d entries", maxEntries)
}

// whole is a reader that breaks off where it ends: what is read of it says itself where that is.
type whole struct{ io.Reader }

// Read implements io.Reader.
func (w whole) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// readCPIO calls each for the regular files of a cpio archive in the "new" format, which rpm2cpio writes (cpio(5)). One without the entry
// that ends it is refused.
func readCPIO(r io.Reader, each func(e entry) error) error {
	all := cpio.NewReader(whole{bufio.NewReader(&bounded{r, maxUnpacked})})
	for range maxEntries {
		h, err := all.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("it is not a whole cpio archive: %w", err)
		}
		if h.Size < 0 { // the library takes a sign for a part of a number, and would panic
			return errors.New("it is not a cpio archive: a file has less than no bytes")
		}
		if h.Mode&cpio.ModeType != cpio.TypeReg {
			continue
		}
		if err := each(entry{name: h.Name, mode: int64(h.Mode), size: h.Size, data: all}); err != nil {
			return err
		}
	}
	return fmt.Errorf("it has more than %d entries", maxEntries)
}

// unpack writes those programs of an archive into a directory, the way of reading it being read, and returns them by name. The archive
// may have others.
func (s *Store) unpack(read func(each func(e entry) error) error, dir string, wanted ...string) (map[string]file, error) {
	found := map[string]file{}
	err := read(func(e entry) error {
		name := e.program()
		if !slices.Contains(wanted, name) {
			return nil
		}
		if _, twice := found[name]; twice {
			return fmt.Errorf("it has %s twice", name)
		}
		if e.size > maxSize {
			return tooLarge()
		}
		if err := hasRoom(s.free, dir, uint64(e.size)); err != nil {
			return err
		}
		f, err := s.write(filepath.Join(dir, name), e.data)
		if err == nil && f.Size != e.size {
			err = fmt.Errorf("%s in it breaks off", name)
		}
		found[name] = f
		return err
	})
	return found, err
}
