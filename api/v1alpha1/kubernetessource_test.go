package v1alpha1

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const ksrcFile = "../../config/crd/bases/capi-refit.dev_kubernetessources.yaml"

func TestKubernetesSourceIsValidated(t *testing.T) {
	definition := crd(t, ksrcFile)
	sum := `sha256: "` + strings.Repeat("0a", 32) + `"`
	versions := func(of string) string {
		return `versions: [{version: ` + of + `, checksums: [{name: kubelet, architecture: amd64, ` + sum + `}]}]`
	}
	v := versions("v1.36.3")
	binaries := func(url string) string { return `{binaries: {url: "` + url + `"}, ` + v + `}` }
	packages := func(rest string) string { return `{packages: {manager: apt` + rest + `}}` }
	directory := func(path string) string { return `{directory: {path: "` + path + `"}, ` + v + `}` }
	image := func(rest string) string {
		return `{systemExtension: {url: "https://mirror.example.org/kubernetes-{version}-{arch}.raw", name: ` + rest + `}, ` + v + `}`
	}
	const plain = "https://mirror.example.org/{version}/bin/linux/{arch}/{name}"
	for name, test := range map[string]struct{ spec, want string }{
		"binaries":          {binaries(plain), ""},
		"a port":            {binaries("http://[::1]:8080/{name}?at={version}"), ""},
		"an archive":        {`{archive: {url: "https://mirror.example.org/{version}-{arch}.tar.gz"}, ` + v + `}`, ""},
		"a directory":       {directory("/opt/kubernetes/{version}/{arch}"), ""},
		"packages":          {packages(``), ""},
		"packages with all": {`{packages: {manager: dnf, repository: "[kubernetes]\nbaseurl=https://mirror.example.org/{minor}/rpm/\ngpgkey=file://{keyring}\n", key: "-----BEGIN PGP PUBLIC KEY BLOCK-----\n…", packageVersion: "{number}-*"}, versions: [{version: v1.36.3}]}`, ""},
		"an extension":      {image("kubernetes"), ""},
		"everything else":   {`{staging: InWindow, selector: {roles: [Worker]}, images: {pull: true, archives: ["https://mirror.example.org/images-{version}.tar"]}, proxy: {url: "http://proxy.example.org:3128", noProxy: [.example.org, 10.0.0.0/8]}, packages: {manager: apt}}`, ""},
		"50 of 50":          {`{binaries: {url: "` + plain + `"}, versions: ` + many(50, `{version: v1.36.%d, checksums: `+strings.ReplaceAll(many(50, `{name: n%d, sha256: "`+strings.Repeat("0a", 32)+`"}`), "%", "%%")+`}`) + `}`, ""},

		"the ends of versions":            {`{packages: {manager: apt}, endOfLife: [{minor: v1.34, date: "2026-10-27"}, {minor: v1.35, date: "2027-02-28"}]}`, ""},
		"the end of a patch":              {`{packages: {manager: apt}, endOfLife: [{minor: v1.34.1, date: "2026-10-27"}]}`, "minor"},
		"an end twice":                    {`{packages: {manager: apt}, endOfLife: [{minor: v1.34, date: "2026-10-27"}, {minor: v1.34, date: "2026-10-28"}]}`, "Duplicate value"},
		"an end that is no day":           {`{packages: {manager: apt}, endOfLife: [{minor: v1.34, date: October}]}`, "date"},
		"nothing":                         {`{}`, "exactly one of"},
		"two":                             {`{packages: {manager: apt}, directory: {path: /opt}, ` + v + `}`, "exactly one of"},
		"binaries without a version":      {`{binaries: {url: "` + plain + `"}}`, "versions names the versions"},
		"an empty list of versions":       {`{binaries: {url: "` + plain + `"}, versions: []}`, "versions names the versions"},
		"a version without checksums":     {`{binaries: {url: "` + plain + `"}, versions: [{version: v1.36.3}]}`, "each version needs checksums"},
		"a version twice":                 {`{packages: {manager: apt}, versions: [{version: v1.36.3}, {version: v1.36.3}]}`, "Duplicate value"},
		"a version without v":             {`{packages: {manager: apt}, versions: [{version: 1.36.3}]}`, "version"},
		"a minor version":                 {`{packages: {manager: apt}, versions: [{version: v1.36}]}`, "version"},
		"binaries without a name":         {binaries("https://mirror.example.org/{version}/kubelet"), "has {name}"},
		"an archive by a name":            {`{archive: {url: "https://mirror.example.org/{name}.tar"}, ` + v + `}`, "no {name}"},
		"an extension by a name":          {`{systemExtension: {url: "https://mirror.example.org/{name}.raw", name: a}, ` + v + `}`, "no {name}"},
		"a login":                         {binaries("https://user:word@mirror.example.org/{name}"), "url"},
		"an @ later":                      {binaries("https://mirror.example.org/@/{name}"), "url"},
		"another scheme":                  {binaries("ftp://mirror.example.org/{name}"), "url"},
		"a file":                          {binaries("file:///{name}"), "url"},
		"something else in braces":        {binaries("https://mirror.example.org/{minor}/{name}"), "url"},
		"a blank":                         {binaries("https://mirror.example.org/a {name}"), "url"},
		"braces in the host":              {binaries("https://{name}.example.org/{name}"), "url"},
		"a relative directory":            {directory("opt"), "path"},
		"a directory above":               {directory("/opt/.."), "neither . nor"},
		"a slash at the end":              {directory("/opt/"), "neither // nor"},
		"a name in a directory":           {directory("/opt/{name}"), "path"},
		"another manager":                 {`{packages: {manager: zypper}}`, "Unsupported value"},
		"a repository with a login":       {packages(`, repository: "deb https://user:word@mirror.example.org/ /"`), "a login in it"},
		"a repository without signatures": {packages(`, repository: "deb [Trusted=0x1] http://mirror.example.org/ /"`), "packages need a signature"},
		"a key that is none":              {packages(`, key: "mQINBGMHpe4B"`), "ASCII armor"},
		"a package version of all":        {packages(`, packageVersion: "*"`), "has {number} or {version}"},
		"a package version of a shell":    {packages(`, packageVersion: "{number}; reboot"`), "packageVersion"},
		"an extension with a path":        {image("../kubernetes"), "name"},
		"an extension without a name":     {`{systemExtension: {url: "https://mirror.example.org/a.raw"}, ` + v + `}`, "name: Required"},
		"a short checksum":                {`{directory: {path: /opt}, versions: [{version: v1.36.3, checksums: [{name: kubelet, sha256: "0a"}]}]}`, "sha256"},
		"a checksum of a path":            {`{directory: {path: /opt}, versions: [{version: v1.36.3, checksums: [{name: a/b, ` + sum + `}]}]}`, "name"},
		"a proxy with a login":            {`{packages: {manager: apt}, proxy: {url: "http://user:word@proxy.example.org"}}`, "proxy.url"},
		"a noProxy of more":               {`{packages: {manager: apt}, proxy: {url: "http://proxy.example.org", noProxy: ["a,b"]}}`, "noProxy"},
		"another staging":                 {`{packages: {manager: apt}, staging: Late}`, "spec.staging"},
		"a role that is none":             {`{packages: {manager: apt}, selector: {roles: [Master]}}`, "spec.selector.roles"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := admit(t, definition, "{apiVersion: capi-refit.dev/v1alpha1, kind: KubernetesSource, metadata: {name: s}, spec: "+test.spec+"}")
			if test.want == "" {
				require.Empty(t, errs)
				return
			}
			require.ErrorContains(t, errs.ToAggregate(), test.want)
		})
	}
}

// TestDocumentedKubernetesSources holds the examples of the page to what an API server takes.
func TestDocumentedKubernetesSources(t *testing.T) {
	definition := crd(t, ksrcFile)
	page, err := os.ReadFile("../../docs/kubernetes-sources.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```yaml\n(# docs/examples/(\\S+)\n.*?)^```$").FindAllStringSubmatch(string(page), -1)
	files, err := filepath.Glob("../../docs/examples/kubernetes-source-*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	require.Len(t, blocks, len(files), "each file is on the page, and each example has a file")
	for _, block := range blocks {
		t.Run(block[2], func(t *testing.T) {
			file, err := os.ReadFile(filepath.Join("../../docs/examples", block[2]))
			require.NoError(t, err)
			require.Equal(t, string(file), block[1], "the page and the file differ")
			require.Empty(t, admit(t, definition, block[1]))
			var source KubernetesSource
			require.NoError(t, yaml.UnmarshalStrict(file, &source))
			require.Equal(t, "KubernetesSource", source.Kind)
		})
	}
}
