package attack

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/kubernetessource"
	"github.com/capi-refit/refit/internal/repository"
)

// unsignedAPT are lists by which apt takes, or could be had to take, packages that nobody has signed.
var unsignedAPT = []string{
	"deb [trusted=yes] http://evil/ /", "deb [trusted=0x1] http://evil/ /", "deb [trusted=01] http://evil/ /", "deb [trusted=+1] http://evil/ /",
	"deb [arch=amd64 trusted=2] http://evil/ /", "deb [t%72usted=yes] http://evil/ /", "deb [\"trusted=yes\"] http://evil/ /",
	"deb [ trusted=TRUE ] http://evil/ /", "deb\t[trusted=0x1]\thttp://evil/ /", "deb [arch=amd64\ttrusted=0x1] http://evil/ /",
	"deb [allow-insecure=0x1] http://evil/ /", "deb [allow-weak=0x1] http://evil/ /", "deb [allow-downgrade-to-insecure=0x1] http://evil/ /",
	"deb [signed-by=/k] http://good/ /\ndeb [trusted=0x1] http://evil/ /", "# deb\ndeb-src [trusted=0x1] http://evil/ /",
	"deb [arch=amd64 #] trusted=0x1] http://evil/ /", "deb [allow-nothing-yet-known=1] http://evil/ /",
	"Types: deb\nURIs: http://evil/\nSuites: /\nTrusted: 0x1", "types: deb\nuris: http://evil/\nsuites: /\ntRuStEd:\n 0x1",
	"Types: deb\nURIs: http://evil/\nSuites: /\nTrusted\t: 0x1", "Types: deb\nURIs: http://evil/\nSuites: /\n# c\nAllow-Insecure: 0x1",
	"Types: deb\nURIs: http://good/\nSuites: /\n\nTypes: deb\nURIs: http://evil/\nSuites: /\nAllow-Weak: 0x1",
	"Types: deb\rTrusted: 0x1", "APT::Get::AllowUnauthenticated \"true\";", "deb ssh://-oProxyCommand=evil/ /",
}

// unverifiedDNF are .repo files by which dnf verifies less.
var unverifiedDNF = []string{
	"[k]\nbaseurl=http://evil/\ngpgcheck=0", "[k]\nbaseurl=http://evil/\ngpgcheck=False", "[k]\nbaseurl=http://evil/\nGPGCHECK = 0x0",
	"[k]\nbaseurl=https://evil/\nsslverify=0", "[k]\nbaseurl=https://evil/\nsslverify = off", "[main]\ngpgcheck=1\nlocalpkg_gpgcheck=0",
	"[k]\nbaseurl=http://evil/\npkg_gpgcheck=n", "[k]\nbaseurl=http://evil/\ntsflags=nocrypto", "[k]\nname=k\n gpgcheck=0",
}

func TestARepositoryThatNeedsNoSignatureIsRefused(t *testing.T) {
	for manager, texts := range map[refitv1.PackageManager][]string{refitv1.APTPackages: unsignedAPT, refitv1.DNFPackages: unverifiedDNF} {
		for _, text := range texts {
			t.Run(fmt.Sprintf("%s refuses %q", manager, text), func(t *testing.T) {
				s := &refitv1.KubernetesSource{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "s"}}
				s.Spec.Packages = &refitv1.PackagesSource{Manager: manager, Repository: text}
				require.ErrorContains(t, kubernetessource.Compile(s).Err, "packages.repository: ", "the server")
				check := repository.CheckAPT
				if manager == refitv1.DNFPackages {
					check = repository.CheckDNF
				}
				require.Error(t, check(text), "the node")
			})
		}
	}
}

func TestARepositoryThatIsSignedIsTaken(t *testing.T) {
	for manager, text := range map[refitv1.PackageManager]string{
		refitv1.APTPackages: "deb [arch=amd64 signed-by={keyring}] https://packages.example.org/{minor}/deb/ /",
		refitv1.DNFPackages: "[k]\nname=K\nbaseurl=https://packages.example.org/{minor}/rpm/\ngpgcheck=1\ngpgkey=file://{keyring}",
	} {
		s := &refitv1.KubernetesSource{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "s"}}
		s.Spec.Packages = &refitv1.PackagesSource{Manager: manager, Repository: text}
		require.NoError(t, kubernetessource.Compile(s).Err)
	}
}
