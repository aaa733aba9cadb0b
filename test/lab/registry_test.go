package lab

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/pelletier/go-toml/v2"
	"github.com/stretchr/testify/require"
)

const (
	testAPIServer = "registry.k8s.io/kube-apiserver:v1.36.3"
	testCoreDNS   = "registry.k8s.io/coredns/coredns:v1.14.2"
)

// archiveOf writes an archive with files.
func archiveOf(t *testing.T, files map[string]string) func() (io.ReadSeekCloser, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), ReleasedImages)
	f, err := os.Create(file)
	require.NoError(t, err)
	archive := tar.NewWriter(f)
	for name, content := range files {
		require.NoError(t, archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}))
		_, err := io.WriteString(archive, content)
		require.NoError(t, err)
	}
	require.NoError(t, archive.Close())
	require.NoError(t, f.Close())
	return func() (io.ReadSeekCloser, error) { return os.Open(file) }
}

// savedImages are as `docker save` writes them. They share a layer.
func savedImages(t *testing.T, names ...string) func() (io.ReadSeekCloser, error) {
	t.Helper()
	files := map[string]string{"common.tar": "what all have"}
	var list []saved
	for n, name := range names {
		layer, config := fmt.Sprintf("%d.tar", n), fmt.Sprintf("%d.json", n)
		files[layer] = "what only " + name + " has"
		files[config] = fmt.Sprintf(`{"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":[%q,%q]}}`,
			"sha256:"+sum(files["common.tar"]), "sha256:"+sum(files[layer]))
		list = append(list, saved{Config: config, RepoTags: []string{name}, Layers: []string{"common.tar", layer}})
	}
	content, err := json.Marshal(list)
	require.NoError(t, err)
	files["manifest.json"] = string(content)
	return archiveOf(t, files)
}

// answer is what a Registry has answered.
type answer struct {
	status int
	header http.Header
	body   string
}

// registryWith is a Registry with images, and what asks it.
func registryWith(t *testing.T, names ...string) (*Registry, func(method, path string) answer) {
	t.Helper()
	r := newRegistry()
	require.NoError(t, r.add(savedImages(t, names...)))
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.address = server.Listener.Addr().String()
	return r, func(method, path string) answer {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+r.address+path+"?ns=registry.k8s.io", nil)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer response.Body.Close() //nolint:errcheck // it was only read
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return answer{response.StatusCode, response.Header, string(body)}
	}
}

func timesServed(t *testing.T, r *Registry, image string) int {
	t.Helper()
	times, err := r.Served(image)
	require.NoError(t, err)
	return times
}

// It is asked as containerd does: for the digest of a tag, for the manifest of that digest, and for all that is in the manifest.
func TestImagesArePulledFromTheRegistry(t *testing.T) {
	r, ask := registryWith(t, testAPIServer, testCoreDNS)
	require.Equal(t, http.StatusOK, ask(http.MethodGet, "/v2/").status)
	for image, at := range map[string]string{testAPIServer: "/v2/kube-apiserver/", testCoreDNS: "/v2/coredns/coredns/"} {
		_, tag, _ := strings.Cut(image, ":")
		head := ask(http.MethodHead, at+"manifests/"+tag)
		require.Equal(t, http.StatusOK, head.status)
		digest := head.header.Get("Docker-Content-Digest")
		require.Zero(t, timesServed(t, r, image), "nobody has its manifest yet")

		got := ask(http.MethodGet, at+"manifests/"+digest)
		require.Equal(t, http.StatusOK, got.status)
		require.Equal(t, "application/vnd.oci.image.manifest.v1+json", got.header.Get("Content-Type"))
		require.Equal(t, digest, "sha256:"+sum(got.body))
		require.Equal(t, 1, timesServed(t, r, image))
		require.Equal(t, got.body, ask(http.MethodGet, at+"manifests/"+tag).body)
		require.Equal(t, 2, timesServed(t, r, image))

		var manifest v1.Manifest
		require.NoError(t, json.Unmarshal([]byte(got.body), &manifest))
		require.Len(t, manifest.Layers, 2)
		contents := map[v1.Hash]string{}
		for _, d := range append(manifest.Layers, manifest.Config) {
			blob := ask(http.MethodGet, at+"blobs/"+d.Digest.String())
			require.Equal(t, http.StatusOK, blob.status)
			require.Equal(t, d.Digest.String(), "sha256:"+sum(blob.body))
			require.EqualValues(t, d.Size, len(blob.body))
			contents[d.Digest] = blob.body
		}
		require.Equal(t, "what all have", contents[manifest.Layers[0].Digest])
		require.Equal(t, "what only "+image+" has", contents[manifest.Layers[1].Digest])
		require.Contains(t, contents[manifest.Config.Digest], "diff_ids")
	}
}

func TestTheRegistryHasNothingElse(t *testing.T) {
	r, ask := registryWith(t, testAPIServer)
	for _, path := range []string{
		"/v2/kube-apiserver/manifests/v1.36.1", "/v2/etcd/manifests/3.6.8-0", "/v2/kube-apiserver/manifests/sha256:" + sum("other"),
		"/v2/kube-apiserver/blobs/sha256:" + sum("other"), "/v1", "/",
	} {
		require.Equal(t, http.StatusNotFound, ask(http.MethodGet, path).status, path)
	}
	for _, method := range []string{http.MethodPut, http.MethodPost, http.MethodDelete} {
		require.Equal(t, http.StatusMethodNotAllowed, ask(method, "/v2/kube-apiserver/manifests/v1.36.3").status, method)
	}
	require.Zero(t, timesServed(t, r, testAPIServer))
	_, err := r.Served("registry.k8s.io/kube-apiserver:v1.36.1")
	require.ErrorContains(t, err, "v1.36.1")
}

func TestTheRegistryIsWithheld(t *testing.T) {
	r, ask := registryWith(t, testAPIServer)
	manifest := ask(http.MethodGet, "/v2/kube-apiserver/manifests/v1.36.3").body
	r.Withhold(true)
	for _, path := range []string{
		"/v2/", "/v2/kube-apiserver/manifests/v1.36.3", "/v2/kube-apiserver/manifests/sha256:" + sum(manifest),
		"/v2/kube-apiserver/blobs/sha256:" + sum("what all have"),
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			require.Equal(t, http.StatusServiceUnavailable, ask(method, path).status, "%s %s", method, path)
		}
	}
	require.Equal(t, 1, timesServed(t, r, testAPIServer), "what was not had does not count")
	r.Withhold(false)
	require.Equal(t, http.StatusOK, ask(http.MethodGet, "/v2/kube-apiserver/manifests/v1.36.3").status)
	require.Equal(t, 2, timesServed(t, r, testAPIServer))
}

func TestHostsFilesNameNoOtherRegistry(t *testing.T) {
	r := newRegistry()
	r.address = "10.213.1.1:5000"
	files := r.HostsFiles()
	require.Contains(t, files, "/etc/containerd/certs.d/registry.k8s.io/hosts.toml")
	for path, content := range files {
		var hosts map[string]any
		require.NoError(t, toml.Unmarshal(content, &hosts), path)
		require.Equal(t, map[string]any{"server": "http://10.213.1.1:5000", "capabilities": []any{"pull", "resolve"}}, hosts, path)
	}
}

func TestArchivesThatTheRegistryCannotServe(t *testing.T) {
	digest := "sha256:" + sum("layer")
	config := func(digests string) string { return `{"rootfs":{"type":"layers","diff_ids":[` + digests + `]}}` }
	list := func(image, layers string) string {
		return `[{"Config":"config.json","RepoTags":["` + image + `"],"Layers":[` + layers + `]}]`
	}
	for name, c := range map[string]struct {
		files map[string]string
		err   string
	}{
		"no list": {nil, "list of images: it is not in the archive"},
		"an image of another registry": {map[string]string{
			"manifest.json": list("example.com/pause:1", ""), "config.json": config(""),
		}, "not one of registry.k8s.io"},
		"an image without a tag": {map[string]string{
			"manifest.json": list("registry.k8s.io/pause", ""), "config.json": config(""),
		}, "registry.k8s.io/pause"},
		"no configuration": {map[string]string{"manifest.json": list(testAPIServer, "")}, "configuration: it is not in the archive"},
		"a layer that is missing": {map[string]string{
			"manifest.json": list(testAPIServer, `"a.tar"`), "config.json": config(`"` + digest + `"`),
		}, "a.tar is not in the archive"},
		"a layer that its configuration does not know": {map[string]string{
			"manifest.json": list(testAPIServer, `"a.tar"`), "config.json": config(""), "a.tar": "layer",
		}, "1 layers, and 0 in its configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, newRegistry().add(archiveOf(t, c.files)), c.err)
		})
	}
}
