package release

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
)

const (
	// tries is how often a transfer is tried, each time going on where the last one broke off.
	tries = 5
	// maxSize bounds what is fetched, in bytes.
	maxSize = 4 << 30
	// reserve is what must be left of a disk, in bytes.
	reserve = 256 << 20
	// partSuffix ends the names of what has not come in full yet.
	partSuffix = ".part"
)

// fetcher brings files over HTTP.
type fetcher struct {
	client *http.Client
	disk   host.Disk
	clock  host.Clock
	free   func(dir string) (uint64, error)
	tell   func(string)
}

// thing is one to fetch.
type thing struct {
	// what it is, for people.
	what   string
	from   *url.URL
	sha256 string
	// to is where it goes.
	to   string
	mode os.FileMode
	// unpacked is how many times its size it takes again when it is put to use.
	unpacked uint64
}

// part is where it is until it is complete. What has begun for another digest is not gone on with.
func (t thing) part() string {
	return filepath.Join(filepath.Dir(t.to), fmt.Sprintf(".%s-%.12s%s", filepath.Base(t.to), t.sha256, partSuffix))
}

// get fetches a thing. Nothing is at t.to before its SHA-256 is right.
func (f fetcher) get(ctx context.Context, t thing) (file, error) {
	done := file{Name: filepath.Base(t.to), SHA256: t.sha256}
	if sum, size, err := digest(f.disk, t.to); err == nil && sum == t.sha256 {
		done.Size = size
		return done, nil
	}
	var err error
	for try := range tries {
		if try > 0 {
			f.tell(fmt.Sprintf("fetching %s again, because %v", t.what, err))
			if err := f.clock.Wait(ctx, time.Second<<try); err != nil {
				return file{}, err
			}
		}
		if done.Size, err = f.try(ctx, t); err == nil {
			return done, f.place(t)
		}
		if ctx.Err() != nil || !errors.As(err, &again{}) {
			break
		}
	}
	return file{}, fmt.Errorf("%s can't be had from %s: %w", t.what, plain(t.from), err)
}

// try goes on with a transfer, and returns the size if all is there.
func (f fetcher) try(ctx context.Context, t thing) (int64, error) {
	out, err := f.disk.OpenFile(t.part(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	sum := sha256.New()
	have, err := io.Copy(sum, out)
	if err != nil {
		return 0, err
	}
	if have == 0 || hexSum(sum) != t.sha256 {
		if have, err = f.transfer(ctx, t, out, sum, have); err != nil {
			return 0, err
		}
	}
	if !f.disk.NoSync {
		err = out.Sync()
	}
	return have, err
}

// transfer appends to a file of which there are have bytes, and verifies it.
func (f fetcher) transfer(ctx context.Context, t thing, out *os.File, sum hash.Hash, have int64) (int64, error) {
	resp, err := f.ask(ctx, t, have)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := refusal(resp); err != nil {
		if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
			err = errors.Join(err, restart(out, sum))
		}
		return 0, err
	}
	part := resp.StatusCode == http.StatusPartialContent
	resumed := have > 0 && part && begins(resp, have)
	if !resumed {
		if err := restart(out, sum); err != nil {
			return 0, err
		}
		have = 0
		if part {
			return 0, again{errors.New("the server sends another part than the one that was asked for")}
		}
	}
	if err := f.room(t, have, resp.ContentLength); err != nil {
		return 0, err
	}
	n, err := io.Copy(io.MultiWriter(out, sum), io.LimitReader(resp.Body, maxSize-have+1))
	have += n
	if err != nil {
		return 0, f.brokenOff(ctx, t, err, have)
	}
	return have, f.verify(t, hexSum(sum), have, resumed)
}

// verify returns an error if what came in full is not what was wanted. Then nothing of it stays.
func (f fetcher) verify(t thing, sum string, size int64, resumed bool) error {
	if size > maxSize {
		return errors.Join(tooLarge(), f.disk.Remove(t.part()))
	}
	if sum == t.sha256 {
		return nil
	}
	err := fmt.Errorf("its SHA-256 is %s, and the source says %s: it is not used", sum, t.sha256)
	if resumed { // what was there before may have been of another file
		err = again{err}
	}
	return errors.Join(err, f.disk.Remove(t.part()))
}

func (f fetcher) ask(ctx context.Context, t thing, have int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.from.String(), nil)
	if err != nil {
		return nil, errors.New("it is no URL")
	}
	if have > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, failure(ctx, err)
	}
	return resp, nil
}

// begins reports whether a part begins where it was asked to.
func begins(resp *http.Response, at int64) bool {
	return strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", at))
}

// restart empties a file of which sum is the digest.
func restart(f *os.File, sum hash.Hash) error {
	sum.Reset()
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// room returns an error if the disk can't take the rest of a thing, of which there are have bytes. -1 is a length that the server has
// not told.
func (f fetcher) room(t thing, have, length int64) error {
	if have+length > maxSize {
		return errors.Join(tooLarge(), f.disk.Remove(t.part()))
	}
	f.tell(fmt.Sprintf("fetching %s%s", t.what, mebibytes(length)))
	need := uint64(max(length, 0)) + t.unpacked*uint64(have+max(length, 0))
	return hasRoom(f.free, filepath.Dir(t.to), need)
}

// brokenOff says how a transfer ended early. On a full disk nothing of it stays: the node needs the room more.
func (f fetcher) brokenOff(ctx context.Context, t thing, err error, have int64) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, syscall.ENOSPC):
		return errors.Join(errors.New("the disk is full"), f.disk.Remove(t.part()))
	}
	return again{fmt.Errorf("the transfer broke off after%s: %w", mebibytes(have), err)}
}

// place gives what was verified its name.
func (f fetcher) place(t thing) error {
	part, err := f.disk.OpenFile(t.part(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer part.Close()
	if err := part.Chmod(t.mode); err != nil {
		return err
	}
	return f.disk.Rename(t.part(), t.to)
}

// hasRoom returns an error if need bytes don't fit below dir with something to spare.
func hasRoom(free func(string) (uint64, error), dir string, need uint64) error {
	left, err := free(dir)
	if err != nil {
		return err
	}
	if left < need+reserve {
		return fmt.Errorf("it takes %d MiB of disk, %d MiB more have to stay free, and %d MiB are free in %s: make room",
			need>>20, uint64(reserve)>>20, left>>20, dir)
	}
	return nil
}

func tooLarge() error { return fmt.Errorf("it is larger than %d GiB", int64(maxSize)>>30) }

// mebibytes returns a size in words, with a blank before it; nothing if it is not known.
func mebibytes(n int64) string {
	if n < 0 {
		return ""
	}
	return fmt.Sprintf(" %d MiB", (n+1<<20-1)>>20)
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// digest returns the SHA-256 of a regular file, in hex, and its size in bytes.
func digest(d host.Disk, name string) (string, int64, error) {
	f, err := d.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	return hexSum(sum), n, err
}
