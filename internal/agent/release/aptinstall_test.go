package release

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func (x *fixture) holds() []string {
	x.Helper()
	return strings.Fields(x.Get("/holds"))
}

// Holds are put back whatever happened: by the call itself, or, when the agent died, by the next one.
func TestAPTHoldsComeBack(t *testing.T) {
	x, src := newAPT(t)
	require.NoError(t, x.stage(src))
	x.Put("/fail-install-kubelet", "")
	require.ErrorContains(t, x.install(target, kubeadm, kubelet), "no space")
	require.ElementsMatch(t, []string{"kubelet", "kubeadm", "linux-image"}, x.holds())
	require.Equal(t, "(missing)", x.Get(Dir+"/held.json"))

	for name, next := range map[string]func() error{
		"installing":    func() error { return x.install(target, Programs...) },
		"going back":    func() error { return x.install(before, Programs...) },
		"staging again": func() error { return x.stage(src) },
	} {
		require.NoError(t, x.install(before, Programs...))
		require.NoError(t, os.RemoveAll(x.Path("/fail-install-kubelet")))
		x.Put("/fail-hold", "") // as if the agent had died before it
		require.ErrorContains(t, x.install(target, kubelet), "could not be put back", name)
		require.NotContains(t, x.Get("/holds"), "kubelet", name)
		require.NoError(t, os.Remove(x.Path("/fail-hold")))
		require.NoError(t, next(), name)
		require.ElementsMatch(t, []string{"kubelet", "kubeadm", "linux-image"}, x.holds(), name)
		require.Equal(t, "(missing)", x.Get(Dir+"/held.json"), name)
	}

	require.NoError(t, x.install(before, kubelet))
	x.PutMode(Dir+"/held.json", "{", 0o600)
	require.ErrorContains(t, x.install(target, kubelet), "can't be read")
}

// requireLocksError requires that nothing else is wrong than that locks did not come back.
func (x *fixture) requireLocksError(err error, which string) {
	x.Helper()
	var locks *LocksError
	require.ErrorAs(x, err, &locks)
	require.ErrorContains(x, locks, which)
	require.ErrorContains(x, err, "is installed, but not as it has to be: the locks of "+which)
	require.NotContains(x, err.Error(), "can't be installed")
}

// A hold that does not come back is told apart from an installation that has failed: going back goes on after the one and not the other.
func TestAPTHoldsThatDoNotComeBack(t *testing.T) {
	x, src := newAPT(t)
	require.NoError(t, x.stage(src))
	x.Put("/fail-hold", "")
	x.requireLocksError(x.install(target, kubeadm), "[kubeadm] could not be put back")
	x.requireLocksError(x.install(target, kubelet), "[kubeadm kubelet] could not be put back")
	require.Equal(t, "v1.36.3,v1.36.3,v1.36.1", x.versions())

	for name, spoiled := range map[string]string{
		"a package that can't be installed":     "/fail-install-kubelet",
		"a program that is not the package's":   "/usr/local/bin/kubelet",
		"a hold that can't be taken off either": "/fail-unhold",
		"holds that are not known":              "/fail-showhold",
	} {
		require.NoError(t, os.Remove(x.Path("/fail-hold")))
		require.NoError(t, x.install(target, kubelet), name)
		x.Put("/fail-hold", "")
		x.PutMode(spoiled, program(kubelet, target), 0o755)
		err := x.install(before, kubelet)
		require.ErrorContains(t, err, "can't be installed", name)
		require.False(t, lacksLocks(err), name)
		require.NoError(t, os.Remove(x.Path(spoiled)))
	}
}

func TestAPTAfterDPKGWasInterrupted(t *testing.T) {
	x, src := newAPT(t)
	require.NoError(t, x.stage(src))
	x.Put("/var/lib/dpkg/updates/0001", "")
	require.NoError(t, x.install(target, kubelet))
	require.Contains(t, x.calls(), "dpkg --force-confdef --force-confold --configure -a")

	// The call that puts back a hold has ended the rest.
	for status, want := range map[string]bool{"half-configured": true, "triggers-pending": true, "half-installed": false} {
		x.Put("/dpkg", "kubelet 1.36.3-1.10 "+status+"\nother 1 unpacked\n")
		require.NoError(t, x.install(target, kubelet))
		require.Equal(t, want, slices.Contains(x.calls(), "dpkg --force-confdef --force-confold --configure -a"), status)
		require.Contains(t, x.Get("/dpkg"), "kubelet 1.36.3-1.10 installed", status)
	}
}

func TestAPTWaitsForOthersOfDPKG(t *testing.T) {
	x, src := newAPT(t)
	require.NoError(t, x.stage(src))
	x.calls()
	x.Put("/busy", "3")
	require.NoError(t, x.install(target, kubelet))
	require.Len(t, shows(x.calls(), "apt-mark unhold kubelet"), 4)
	x.Put("/busy", "2")
	x.Put("/var/lib/dpkg/updates/0001", "")
	require.NoError(t, x.install(before, kubelet))
	require.Len(t, shows(x.calls(), "dpkg --force-confdef"), 3)
	require.ElementsMatch(t, []string{"kubelet", "kubeadm", "linux-image"}, x.holds())

	x.Put("/busy", "1000")
	require.ErrorContains(t, x.install(target, kubelet),
		"somebody else has had the package manager for 5m0s: dpkg: error: dpkg frontend lock was locked by another process with pid 2425: wait for its end")
	require.Equal(t, "v1.36.1,v1.36.1,v1.36.1", x.versions())
	require.NoError(t, os.Remove(x.Path("/busy")))
	require.NoError(t, x.install(target, kubelet))
	require.ElementsMatch(t, []string{"kubelet", "kubeadm", "linux-image"}, x.holds())
}

func TestWhatDPKGSaysWhenItIsInUse(t *testing.T) {
	for said, want := range map[string]bool{
		"dpkg: error: dpkg frontend lock was locked by another process with pid 7\nNote: removing\n":                                                  true,
		"dpkg: error: dpkg database lock is locked by another process":                                                                                true,
		"dpkg: error: dpkg frontend is locked by another process":                                                                                     true,
		"dpkg: error: dpkg status database is locked by another process":                                                                              true,
		"dpkg: status database area is locked by another process":                                                                                     true,
		"E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7 (apt)":                                                            true,
		"E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?":                                     true,
		"E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), are you root?":                                                    false,
		"dpkg: error: unable to open/create dpkg frontend lock for directory /var/lib/dpkg: Read-only file system":                                    false,
		"E: Could not get lock /var/cache/apt/archives/lock. It is held by process 7 (apt-get)\nE: Unable to lock directory /var/cache/apt/archives/": true,
		"error: can't create transaction lock on /var/lib/rpm/.rpm.lock (Resource temporarily unavailable)":                                           true,
		"error: can't create transaction lock on /var/lib/rpm/.rpm.lock (Permission denied)":                                                          false,
		"dpkg: error processing package lock (--configure)":                                                                                           false,
	} {
		require.Equal(t, want, inUse.MatchString(said), said)
	}
}

// Locks that can't be put back don't keep the node from going back, and are not forgotten.
func TestAPTInstallsWhatLocksHinder(t *testing.T) {
	x, src := newAPT(t)
	require.NoError(t, x.stage(src))
	x.PutMode(Dir+"/held.json", `{"manager":"apt","packages":["kubectl"]}`, 0o600)
	x.Put("/fail-hold", "")
	x.Put("/holds", "")
	require.NoError(t, x.install(target, kubelet))
	require.Contains(t, strings.Join(x.told, "\n"), "the locks of [kubectl] could not be put back")
	x.Put("/fail-install-kubelet", "")
	require.ErrorContains(t, x.install(before, kubelet), "the locks of [kubectl] could not be put back")
	require.NoError(t, os.Remove(x.Path("/fail-install-kubelet")))

	// Somebody else has dpkg until patience is at its end, and no longer.
	require.NoError(t, os.Remove(x.Path("/fail-hold")))
	x.Put("/holds", "kubelet\n")
	x.Put("/busy", "61")
	x.told = nil
	require.NoError(t, x.install(before, kubelet))
	require.Equal(t, "0", strings.TrimSpace(x.Get("/busy")))
	require.ElementsMatch(t, []string{"kubelet", "kubectl"}, x.holds(), "what was off before too")
	require.Equal(t, "(missing)", x.Get(Dir+"/held.json"))
	require.Empty(t, x.told)
}

func TestAPTGoesOnWhenAnotherPackageIsBroken(t *testing.T) {
	x, src := newAPT(t)
	require.NoError(t, x.stage(src))
	x.Put("/broken", "")
	for _, version := range []string{target, before} {
		x.told = nil
		require.NoError(t, x.install(version, Programs...))
		require.Equal(t, strings.Repeat(version+",", 2)+version, x.versions())
		require.Len(t, x.told, 1)
		require.Regexp(t, "another package of the node could not be set up: apt-get: exit status 1: .* grub-pc", x.told[0])
		require.ElementsMatch(t, []string{"kubelet", "kubeadm", "linux-image"}, x.holds())
	}

	// The same where dpkg was killed before.
	x.told = nil
	x.Put("/dpkg", strings.Replace(x.Get("/dpkg"), "kubelet 1.36.1-1.1 installed", "kubelet 1.36.1-1.1 half-configured", 1))
	require.NoError(t, x.install(before, kubelet))
	require.Len(t, x.told, 1)
	require.Regexp(t, "another package of the node could not be set up: dpkg: exit status 1: .* grub-pc", x.told[0])

	x.Put("/fail-install-kubelet", "")
	err := x.install(target, kubelet)
	require.ErrorContains(t, err, "no space")
	require.ErrorContains(t, err, "does not have kubelet 1.36.3-1.10 installed and running")
	x.Put("/dpkg", "kubelet 1.36.3-1.10 installed\n")
	require.ErrorContains(t, x.install(target, kubelet), "installed and running", "dpkg takes it for installed, which it is not")
}

// A source's own repository is used with signatures, whatever apt.conf says. What the node's own need is up to the node.
func TestAPTDemandsSignatures(t *testing.T) {
	for _, own := range []bool{true, false} {
		x, src := newAPT(t)
		if own {
			src.Packages.Repository = ""
		}
		require.NoError(t, x.stage(src))
		demanded := 0
		for _, c := range x.calls() {
			of := strings.HasPrefix(c, "apt-get update ") || strings.Contains(c, "--download-only") && strings.Contains(c, "=1.36.3-1.10")
			if !of && !strings.HasPrefix(c, "apt-cache ") {
				require.NotContains(t, c, "Allow", "what is installed comes from where it came from")
			}
			if !of {
				continue
			}
			for _, name := range []string{"APT::Get::AllowUnauthenticated", "Acquire::AllowInsecureRepositories",
				"Acquire::AllowWeakRepositories", "Acquire::AllowDowngradeToInsecureRepositories"} {
				require.Equal(t, !own, strings.Contains(c, " -o "+name+"=false"), c)
			}
			demanded++
		}
		require.Equal(t, 2, demanded)
	}
}
