package kubernetessource

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
)

const mirror = "https://mirror.example.org/"

// from has the programs come from somewhere else than packages.
func from(e edit) edit {
	return func(s *spec) {
		s.Packages = nil
		e(s)
	}
}

func binaries(url refitv1.SourceURL) edit {
	return from(func(s *spec) { s.Binaries = &refitv1.BinariesSource{URL: url} })
}

func archive(url refitv1.SourceURL) edit {
	return from(func(s *spec) { s.Archive = &refitv1.ArchiveSource{URL: url} })
}

func directory(path string) edit {
	return from(func(s *spec) { s.Directory = &refitv1.DirectorySource{Path: path} })
}

func extends(url refitv1.SourceURL, name string) edit {
	return from(func(s *spec) { s.SystemExtension = &refitv1.SystemExtensionSource{URL: url, Name: name} })
}

func images(urls ...refitv1.SourceURL) edit { return func(s *spec) { s.Images.Archives = urls } }

func checksums(of ...node.Checksum) []node.Checksum {
	for i := range of {
		of[i].SHA256 = digest
	}
	return of
}

func TestWhatANodeIsTold(t *testing.T) {
	const key = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n"
	for name, tc := range map[string]struct {
		edits []edit
		want  node.Source
	}{
		"binaries": {
			[]edit{binaries(mirror + "{version}/{arch}/{name}"), sums("kubeadm amd64", "kubelet amd64", "kubectl amd64")},
			node.Source{Binaries: &node.Binaries{URL: mirror + "{version}/{arch}/{name}"}, Checksums: checksums(
				node.Checksum{Name: "kubeadm", Architecture: "amd64"}, node.Checksum{Name: "kubelet", Architecture: "amd64"}, node.Checksum{Name: "kubectl", Architecture: "amd64"})},
		},
		"an archive": {
			[]edit{archive(mirror + "{version}.tar.gz?x=y"), sums("v1.36.3.tar.gz")},
			node.Source{Archive: &node.Archive{URL: mirror + "{version}.tar.gz?x=y"}, Checksums: checksums(node.Checksum{Name: "v1.36.3.tar.gz"})},
		},
		"a directory": {
			[]edit{directory("/opt/{version}"), sums("kubeadm", "kubelet", "kubectl")},
			node.Source{Directory: &node.Directory{Path: "/opt/{version}"}, Checksums: checksums(
				node.Checksum{Name: "kubeadm"}, node.Checksum{Name: "kubelet"}, node.Checksum{Name: "kubectl"})},
		},
		"packages, of which any version will do": {nil, node.Source{Packages: &node.Packages{Manager: node.APT, PackageVersion: "{number}-*"}}},
		"packages with all": {
			[]edit{named("v1.36.2", "v1.36.3"), func(s *spec) {
				s.Packages = &refitv1.PackagesSource{Manager: refitv1.DNFPackages, Repository: "[k]\n", Key: key, PackageVersion: "{number}-150*"}
				s.Proxy = &refitv1.ProxySource{URL: "http://proxy.example.org:3128", NoProxy: []string{".example.org", "10.0.0.0/8"}}
				s.Images.Pull = true
			}},
			node.Source{
				Packages: &node.Packages{Manager: node.DNF, Repository: "[k]\n", Key: key, PackageVersion: "{number}-150*"},
				Images:   node.Images{Pull: true}, Proxy: "http://proxy.example.org:3128", NoProxy: ".example.org,10.0.0.0/8",
			},
		},
		"an extension, and images": {
			[]edit{extends(mirror+"kubernetes-{version}-{arch}.raw", "kubernetes"), images(mirror + "images-{version}.tar"),
				sums("kubernetes-v1.36.3-amd64.raw amd64", "kubernetes-v1.36.3-arm64.raw arm64", "images-v1.36.3.tar")},
			node.Source{
				SystemExtension: &node.SystemExtension{URL: mirror + "kubernetes-{version}-{arch}.raw", Name: "kubernetes"},
				Images:          node.Images{Archives: []string{mirror + "images-{version}.tar"}}, Checksums: checksums(
					node.Checksum{Name: "kubernetes-v1.36.3-amd64.raw", Architecture: "amd64"},
					node.Checksum{Name: "kubernetes-v1.36.3-arm64.raw", Architecture: "arm64"}, node.Checksum{Name: "images-v1.36.3.tar"}),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			read := Compile(source("a", tc.edits...))
			require.NoError(t, read.Err)
			selected, err := One(read)
			require.NoError(t, err)
			got, err := selected.For("v1.36.3")
			require.NoError(t, err)
			tc.want.Name, tc.want.Version = "a", "v1.36.3"
			require.Equal(t, &tc.want, got)
		})
	}
}

func TestWhatASourceDoesNotHave(t *testing.T) {
	for name, tc := range map[string]struct {
		edits         []edit
		version, want string
	}{
		"another version":           {[]edit{named("v1.36.2", "v1.36.3")}, "v1.36.4", "KubernetesSource a does not have v1.36.4; it has v1.36.2, v1.36.3; add it to the source's versions"},
		"no version at all":         {nil, "v1.36", `is not asked for "v1.36": "v1.36" is not a version such as v1.36.3`},
		"what is no version of K8s": {nil, "1.36.3", "is not a version such as v1.36.3"},
		"what a shell would read":   {nil, "v1.36.3;reboot", "is not a version"},
	} {
		t.Run(name, func(t *testing.T) {
			selected, err := One(Compile(source("a", tc.edits...)))
			require.NoError(t, err)
			_, err = selected.For(tc.version)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestCompileChecksAgain(t *testing.T) {
	all := []string{"kubeadm", "kubelet", "kubectl"}
	plain := binaries(mirror + "{version}/{arch}/{name}")
	packages := func(e func(*refitv1.PackagesSource)) edit { return func(s *spec) { e(s.Packages) } }
	for name, tc := range map[string]struct {
		edits []edit
		want  string
	}{
		"both architectures":                  {[]edit{plain, sums("kubeadm amd64", "kubelet amd64", "kubectl amd64", "kubeadm arm64", "kubelet arm64", "kubectl arm64")}, ""},
		"an architecture in the URL":          {[]edit{archive(mirror + "{arch}.tar"), sums("amd64.tar")}, ""},
		"an architecture that is written out": {[]edit{extends(mirror+"k-{version}-x86-64.raw", "k"), sums("k-v1.36.3-x86-64.raw amd64")}, ""},
		"one checksum for all":                {[]edit{plain, sums(all...)}, ""},
		"nothing":                             {[]edit{from(func(*spec) {})}, "0 of binaries, archive, directory, packages and systemExtension are set"},
		"two":                                 {[]edit{func(s *spec) { s.Directory = &refitv1.DirectorySource{Path: "/opt"} }}, "2 of binaries"},
		"another staging":                     {[]edit{func(s *spec) { s.Staging = "Late" }}, `staging: "Late" is not known`},
		"another scheme":                      {[]edit{binaries("ftp://mirror.example.org/{name}")}, "binaries.url: it is neither an http nor an https URL"},
		"no host":                             {[]edit{binaries("https:///{name}")}, "it names no host"},
		"no URL":                              {[]edit{binaries("https://mirror.example.org/%zz{name}")}, "it is not a URL"},
		"a login":                             {[]edit{binaries("https://user:word@mirror.example.org/{name}")}, "it has a login in it"},
		"something else in braces":            {[]edit{binaries(mirror + "{minor}/{name}")}, "only {version}, {arch} and {name}"},
		"no name":                             {[]edit{binaries(mirror + "kubelet")}, "it has no {name}"},
		"a name":                              {[]edit{archive(mirror + "{name}.tar")}, "it has {name}, and is one thing"},
		"a name of an image archive":          {[]edit{images(mirror + "{name}.tar")}, "images.archives[0]: it has {name}"},
		"a relative directory":                {[]edit{directory("opt")}, "directory.path"},
		"the root":                            {[]edit{directory("/")}, "directory.path"},
		"a directory above":                   {[]edit{directory("/opt/../{version}")}, "directory.path"},
		"a name in a directory":               {[]edit{directory("/opt/{name}")}, "only {version} and {arch}"},
		"another manager":                     {[]edit{unreadable}, `packages.manager: "zypper" is not known`},
		"a login in a repository":             {[]edit{packages(func(p *refitv1.PackagesSource) { p.Repository = "deb https://user:word@mirror.example.org/ /" })}, "packages.repository: it has a URL with a login"},
		"a key that is none":                  {[]edit{packages(func(p *refitv1.PackagesSource) { p.Key = "x" })}, "packages.key"},
		"a package version of a shell":        {[]edit{packages(func(p *refitv1.PackagesSource) { p.PackageVersion = "{number};x" })}, "packages.packageVersion"},
		"a package version of all":            {[]edit{packages(func(p *refitv1.PackagesSource) { p.PackageVersion = "*" })}, "packages.packageVersion"},
		"an extension elsewhere":              {[]edit{extends(mirror+"a.raw", "../a")}, "systemExtension.name"},
		"a proxy with a login":                {[]edit{func(s *spec) { s.Proxy = &refitv1.ProxySource{URL: "http://user:word@proxy.example.org"} }}, "proxy.url: it has a login"},
		"no versions":                         {[]edit{plain}, "versions: it is empty"},
		"images without versions":             {[]edit{images(mirror + "a.tar")}, "images.archives need checksums"},
		"images without a checksum":           {[]edit{images(mirror + "a.tar"), named("v1.36.3")}, "versions[v1.36.3].checksums: a.tar has none for amd64, and without one it is not used"},
		"a version that is none":              {[]edit{named("1.36.3")}, "is not a version such as v1.36.3"},
		"a version twice":                     {[]edit{named("v1.36.3", "v1.36.3")}, "it is there twice"},
		"a program without a checksum":        {[]edit{plain, sums("kubeadm", "kubelet")}, "kubectl has none for amd64"},
		"one without, of one architecture":    {[]edit{plain, sums("kubeadm amd64", "kubelet amd64", "kubectl amd64", "kubelet arm64")}, "kubeadm, kubectl has none for arm64"},
		"the checksum of another file":        {[]edit{archive(mirror + "{version}-{arch}.tar"), sums("v1.36.3.tar")}, "v1.36.3-amd64.tar has none"},
		"a checksum twice":                    {[]edit{plain, sums("kubeadm", "kubelet", "kubectl", "kubelet")}, "kubelet is there twice"},
		"a short checksum":                    {[]edit{plain, sums(all...), func(s *spec) { s.Versions[0].Checksums[1].SHA256 = "0a" }}, "kubelet: sha256 is not"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Compile(source("a", tc.edits...)).Err
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
			require.NotContains(t, err.Error(), "word", "what is wrong is said without the login")
		})
	}
}

func TestASourceIsNotTheObject(t *testing.T) {
	object := source("a", named("v1.36.3"))
	read := Compile(object)
	object.Spec.Versions[0].Version = "v1.36.9"
	object.Spec.Packages.Manager = "zypper"
	got, err := read.version("v1.36.3")
	require.NoError(t, err)
	require.Equal(t, node.APT, got.Packages.Manager)
}

// FuzzURL looks for URLs by which a source can be read and a node would be told something else than an http or https URL, and for
// problems that show a login.
func FuzzURL(f *testing.F) {
	for _, seed := range []string{mirror + "{version}/{arch}/{name}", "https://user:pass@host/{name}", "http://[::1]:1/{name}?a=b#c", "file:///{name}", "{name}://x", "https://{name}/", "https://a/%2f{name}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		read := Compile(source("a", binaries(refitv1.SourceURL(text)), sums("kubeadm", "kubelet", "kubectl")))
		if read.Err != nil {
			require.LessOrEqual(t, len(read.Err.Error()), 200, "nothing of the URL is in it")
			return
		}
		u, err := url.Parse(expand(text, "v1.36.3", "amd64", "kubelet"))
		require.NoError(t, err)
		require.Contains(t, []string{"http", "https"}, u.Scheme)
		require.NotEmpty(t, u.Host)
		require.Nil(t, u.User)
	})
}
