package lab

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// served are Releases with two files, and what asks for them.
func served(t *testing.T) (*Releases, func(path, part string) (int, string)) {
	t.Helper()
	r := &Releases{files: map[string]*released{}}
	for name, content := range map[string]string{"kubelet": "the kubelet", ReleasedImages: "the images"} {
		file := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		require.NoError(t, r.put("v1.36.3", name, func() (io.ReadSeekCloser, error) { return os.Open(file) }))
	}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.address = server.Listener.Addr().String()
	return r, func(url, part string) (int, string) {
		t.Helper()
		url = strings.NewReplacer("{version}", "v1.36.3", "{arch}", runtime.GOARCH, "{name}", "kubelet").Replace(url)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		require.NoError(t, err)
		if part != "" {
			request.Header.Set("Range", part)
		}
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer response.Body.Close() //nolint:errcheck // it was only read
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(body)
	}
}

func sum(content string) string {
	s := sha256.Sum256([]byte(content))
	return hex.EncodeToString(s[:])
}

func TestReleasesAreServed(t *testing.T) {
	r, get := served(t)
	status, body := get(r.ProgramURL(), "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "the kubelet", body)
	require.Len(t, r.ArchiveURLs(), 1)
	_, body = get(r.ArchiveURLs()[0], "")
	require.Equal(t, "the images", body)
	require.Equal(t, map[string]string{"kubelet": sum("the kubelet"), ReleasedImages: sum("the images")}, r.Checksums("v1.36.3"))
	require.Empty(t, r.Checksums("v1.36"))

	status, body = get(r.ProgramURL(), "bytes=4-")
	require.Equal(t, http.StatusPartialContent, status, "a transfer can go on where it broke off")
	require.Equal(t, "kubelet", body)
	times, err := r.Served("v1.36.3", "kubelet")
	require.NoError(t, err)
	require.Equal(t, 2, times)

	for _, path := range []string{"", "/v1.36.3", "/v1.36.3/" + runtime.GOARCH, "/../etc/passwd", "/v1.36.4/" + runtime.GOARCH + "/kubelet"} {
		status, _ = get("http://"+r.address+path, "")
		require.Equal(t, http.StatusNotFound, status, path)
	}
}

func TestReleasesGoWrongAsTold(t *testing.T) {
	r, get := served(t)
	require.NoError(t, r.Withhold("v1.36.3", "kubelet", true))
	status, _ := get(r.ProgramURL(), "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	_, body := get(r.ArchiveURLs()[0], "")
	require.Equal(t, "the images", body, "others are served")
	require.NoError(t, r.Withhold("v1.36.3", "kubelet", false))

	require.NoError(t, r.Replace("v1.36.3", "kubelet", []byte("another one")))
	_, body = get(r.ProgramURL(), "")
	require.Equal(t, "another one", body)
	require.Equal(t, sum("another one"), r.Checksums("v1.36.3")["kubelet"])
	require.NoError(t, r.Replace("v1.36.3", "kubelet", nil))
	_, body = get(r.ProgramURL(), "")
	require.Equal(t, "the kubelet", body)
	require.Equal(t, sum("the kubelet"), r.Checksums("v1.36.3")["kubelet"])

	require.ErrorContains(t, r.Withhold("v1.36.3", "kubectl", true), "no kubectl is served of v1.36.3")
}

func TestAddressIn(t *testing.T) {
	var own []net.Addr
	for _, a := range []string{"127.0.0.1/8", "fd00::1/64", "10.213.1.1/24", "192.0.2.7/24"} {
		ip, network, err := net.ParseCIDR(a)
		require.NoError(t, err)
		network.IP = ip // as interfaces say it
		own = append(own, network)
	}
	address, err := addressIn([]string{"fd00::/64", "10.213.1.0/24"}, own)
	require.NoError(t, err)
	require.Equal(t, "10.213.1.1", address)
	_, err = addressIn([]string{"10.214.1.0/24"}, own)
	require.ErrorContains(t, err, "10.214.1.0/24")
}
