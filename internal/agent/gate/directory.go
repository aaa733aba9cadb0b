package gate

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/capi-refit/refit/internal/agent/host"
)

// openDir opens a directory of which, and of all above it, nobody but root can exchange anything. With create, what is missing is made.
func openDir(path string, create bool) (*os.Root, error) {
	node := host.Root{Dir: "/"}
	if err := node.CheckOwned(path); err != nil {
		return nil, err
	}
	if create {
		// In what is there nobody else can make anything, so that this can't be led astray.
		if err := (host.Disk{}).Mkdirs(path, 0o700); err != nil {
			return nil, err
		}
	}
	dir, err := node.OpenDir(path)
	if dir == nil && err == nil {
		err = fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	return dir, err
}

// open opens a regular file that nobody but root can write, or exchange.
func open(path string) (*os.File, error) {
	if err := (host.Root{Dir: "/"}).CheckOwned(path); err != nil {
		return nil, err
	}
	return host.Disk{}.OpenFile(path, os.O_RDONLY, 0)
}

// read reads a small file that nobody but root can write.
func read(path string, most int64) ([]byte, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	return data, err
}
