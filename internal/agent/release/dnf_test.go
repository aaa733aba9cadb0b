package release

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
)

// Stand-ins for dnf and rpm. What is installed is in /rpmdb, and since when, what the repository has in /pool. A package that states an
// epoch of 0 is in /epoch. With /localpkg_gpgcheck dnf verifies files with rpm's keys, of which the source's is none.
const (
	rpm = `
for p; do :; done
case "$*" in
*" -p "*) basename $p .rpm | sed "s/^\([a-z]*\)-\(.*\)\.\([^.]*\)$/\1 \2 \3 (none)/; s/^$(cat $REFIT_ROOT/epoch) /&0:/";;
-e*) sed -i "/^$(echo $p | sed 's/-/ /; s/\.\([^.]*\)$/ \1/') /d" $REFIT_ROOT/rpmdb;;
*) grep "^$p " $REFIT_ROOT/rpmdb || { echo "package $p is not installed"; exit 1; };;
esac`
	rpmkeys = `
for p; do :; done
case "$*" in
*--import*) [ -s $p ];;
*) if [ -e $REFIT_ROOT/unsigned ]; then echo "$p: digests OK"; else echo "$p: digests signatures OK"; fi;;
esac`
	rpm2cpio = `cat $1`
	dnfText  = `
for a; do case $a in --destdir=*) dir=${a#*=};; esac; done
case "$*" in
*"list --showduplicates"*) for name; do :; done; cat $REFIT_ROOT/list-$name;;
*" download "*) for a; do case $a in ku*) cp $REFIT_ROOT/pool/$a.x86_64.rpm $dir/ || { echo "No package $a available." >&2; exit 1; };; esac; done;;
*makecache) exit 0;;
*versionlock*) [ $2 = '--disablerepo=*' ] || { echo "a repository is away" >&2; exit 1; }
	[ -e $REFIT_ROOT/fail-lock-$4 ] && exit 1
	verb=$4; shift 4; for p; do
	if [ $verb = delete ]; then sed -i "/^$p-/d" $REFIT_ROOT/etc/dnf/plugins/versionlock.list
	else echo "$p-0:$(grep "^$p " $REFIT_ROOT/rpmdb | cut -d' ' -f2).*" >>$REFIT_ROOT/etc/dnf/plugins/versionlock.list; fi; done;;
*)	[ "$SYSTEMD_OFFLINE" = 1 ] || exit 99
	case "$*" in *localpkg_gpgcheck=False*) ;; *) [ -e $REFIT_ROOT/localpkg_gpgcheck ] && { echo "Public key is not installed" >&2; exit 1; };; esac
	for a; do case $a in *.rpm)
		name=$(basename $a .rpm | sed 's/^\([a-z]*\)-.*/\1/'); version=$(basename $a .x86_64.rpm | sed 's/^[a-z]*-//')
		grep -q "^$name-" $REFIT_ROOT/etc/dnf/plugins/versionlock.list 2>/dev/null && { echo "locked" >&2; exit 1; }
		last=$(printf '%s\n' $version $(grep "^$name " $REFIT_ROOT/rpmdb | cut -d' ' -f2) | sort -V | tail -n1)
		case "$*" in *" install "*) [ $last = $version ] || exit 3;; *" downgrade "*) [ $last != $version ] || exit 4;; esac
		sed -i "/^$name .* x86_64 /d" $REFIT_ROOT/rpmdb; echo $name $version x86_64 2 >>$REFIT_ROOT/rpmdb
		cp $REFIT_ROOT/unpacked/$name-$version $REFIT_ROOT/usr/bin/$name;;
	esac; done;;
esac`
)

func newDNF(t *testing.T) (*fixture, node.Source) {
	t.Helper()
	x := newFixture(t)
	for name, text := range map[string]string{"rpm": rpm, "rpmkeys": rpmkeys, "rpm2cpio": rpm2cpio, "dnf": dnfText} {
		x.script(name, text)
	}
	db := ""
	for _, name := range Programs {
		db += name + " 1.36.1-150500.1.1 x86_64 1\n"
		x.PutMode("/list-"+name, fmt.Sprintf("Available Packages\n%[1]s.x86_64  1.36.3-150500.1.9  kubernetes\n%[1]s.x86_64  1.36.3-150500.1.10  kubernetes\n"+
			"%[1]s.src  1.36.3-150500.1.99  kubernetes\n%[1]s.x86_64  1.36.4-150500.1.1  kubernetes\n", name), 0o644)
		for release, version := range map[string]string{"1.36.3-150500.1.10": target, "1.36.1-150500.1.1": before} {
			x.Put("/pool/"+name+"-"+release+".x86_64.rpm", cpioOf(packed{"./usr/bin/" + name, program(name, version), 0o100755, 0}))
			x.PutMode("/unpacked/"+name+"-"+release, program(name, version), 0o755)
		}
	}
	x.Put("/rpmdb", db)
	x.Put("/epoch", "none")
	return x, node.Source{Name: "inside", Version: target, Packages: &node.Packages{
		Manager: node.DNF, PackageVersion: "{number}-*", Key: "the key",
		Repository: "[kubernetes]\nbaseurl=https://pkgs.example.com/{minor}/rpm/\nexclude=kubelet\ngpgkey=file://{keyring}",
	}}
}

const lockList = "# Added lock on a day\nkubelet-0:1.36.1-150500.1.1.*\nkernel-0:6.1-1.*\n"

func TestDNF(t *testing.T) {
	x, src := newDNF(t)
	x.Put("/etc/dnf/plugins/versionlock.list", lockList)
	require.NoError(t, x.stage(src))
	require.Empty(t, x.missing(src))
	require.Equal(t, &Release{Version: target, Kubeadm: x.Path(Dir + "/v1.36.3/kubeadm"), Packages: true}, x.find(target))
	require.NotNil(t, x.find(before))
	require.Contains(t, x.Get(Dir+"/v1.36.3/repositories/refit-kubernetes.repo"), "gpgkey=file://"+x.Path(Dir+"/v1.36.3/repository.asc"))
	calls := x.calls()
	require.Len(t, shows(calls, "dnf -q -y --setopt=disable_excludes=all,* --disableplugin=versionlock --setopt=reposdir="+x.Path(Dir)), 4)
	require.Contains(t, strings.Join(calls, "\n"), " --setopt=skip_if_unavailable=False --refresh makecache\n")
	require.Len(t, shows(calls, "rpmkeys --dbpath "+x.Path(Dir+"/v1.36.3/keys")), 4, "the source's key and no other")
	require.Equal(t, lockList, x.Get("/etc/dnf/plugins/versionlock.list"), "staging disturbs nothing")

	require.NoError(t, x.install(target, kubeadm))
	require.Equal(t, "v1.36.3,v1.36.1,v1.36.1", x.versions())
	require.NoError(t, x.install(target, kubelet, kubectl))
	require.Equal(t, "v1.36.3,v1.36.3,v1.36.3", x.versions())
	require.Contains(t, x.Get("/etc/dnf/plugins/versionlock.list"), "kubelet-0:1.36.3-150500.1.10.*")
	require.Contains(t, x.Get("/etc/dnf/plugins/versionlock.list"), "kernel-0:6.1-1.*")
	require.NotContains(t, x.Get("/etc/dnf/plugins/versionlock.list"), "kubeadm")
	x.calls()
	require.NoError(t, x.install(target, Programs...))
	require.Empty(t, shows(x.calls(), "dnf"), "nothing is done twice")

	require.NoError(t, x.install(before, Programs...))
	require.Equal(t, "v1.36.1,v1.36.1,v1.36.1", x.versions())
	require.Len(t, shows(x.calls(), "dnf -y --setopt=disable_excludes=all,* --setopt=localpkg_gpgcheck=False --disablerepo=* downgrade"), 1)
	require.Contains(t, x.Get("/etc/dnf/plugins/versionlock.list"), "kubelet-0:1.36.1-150500.1.1.*")
}

// What is installed is looked at, though its lock does not come back.
func TestDNFLocksThatDoNotComeBack(t *testing.T) {
	x, src := newDNF(t)
	x.Put("/etc/dnf/plugins/versionlock.list", lockList)
	require.NoError(t, x.stage(src))
	x.Put("/fail-lock-add", "")
	x.requireLocksError(x.install(target, kubelet), "[kubelet] could not be put back")
	require.Equal(t, "v1.36.1,v1.36.3,v1.36.1", x.versions())

	require.NoError(t, os.Remove(x.Path("/fail-lock-add")))
	require.NoError(t, x.install(target, kubelet))
	require.Contains(t, x.Get("/etc/dnf/plugins/versionlock.list"), "kubelet-0:1.36.3-150500.1.10.*")
}

func TestDNFCannotStage(t *testing.T) {
	for name, c := range map[string]struct {
		change func(x *fixture, src *node.Source)
		err    string
	}{
		"no signature":    {func(x *fixture, _ *node.Source) { x.Put("/unsigned", "") }, "not signed by a key that is trusted"},
		"no such version": {func(_ *fixture, src *node.Source) { src.Packages.PackageVersion = "{number}-2*" }, "no version of package kubeadm matches"},
		"a lock of dnf 5": {func(x *fixture, _ *node.Source) {
			x.Put("/etc/dnf/versionlock.toml", "[[packages]]\nname = \"kubelet\"\n")
		}, "remove that lock"},
		"a kubelet of no package": {func(x *fixture, _ *node.Source) { x.Put("/rpmdb", "") }, "not of a package"},
		"another version within": {func(x *fixture, _ *node.Source) {
			x.Put("/pool/kubelet-1.36.3-150500.1.10.x86_64.rpm", cpioOf(packed{"./usr/bin/kubelet", program(kubelet, "v1.36.2"), 0o100755, 0}))
		}, `kubelet is of version "v1.36.2"`},
	} {
		t.Run(name, func(t *testing.T) {
			x, src := newDNF(t)
			c.change(x, &src)
			require.ErrorContains(t, x.stage(src), c.err)
			require.Nil(t, x.find(target))
		})
	}
}

func TestDNFOfAHardenedNode(t *testing.T) {
	x, src := newDNF(t)
	x.Put("/localpkg_gpgcheck", "")
	require.NoError(t, x.stage(src))
	require.NoError(t, x.install(target, Programs...))
	require.NoError(t, x.install(before, Programs...))
	require.Equal(t, "v1.36.1,v1.36.1,v1.36.1", x.versions())
}

func TestDNFFallsBackToCopies(t *testing.T) {
	x, src := newDNF(t)
	require.NoError(t, os.Remove(x.Path("/pool/kubelet-1.36.1-150500.1.1.x86_64.rpm")))
	require.NoError(t, x.stage(src))
	require.NoError(t, x.install(target, Programs...))
	require.NoError(t, x.install(before, Programs...))
	require.Equal(t, "v1.36.1,v1.36.1,v1.36.1", x.versions())
	require.NoError(t, x.install(target, Programs...), "rpm takes it for installed, which it is not")
	require.Equal(t, "v1.36.3,v1.36.3,v1.36.3", x.versions())
	require.Len(t, shows(x.calls(), "dnf -y --setopt=disable_excludes=all,* --setopt=localpkg_gpgcheck=False --disablerepo=* reinstall"), 1)
}

// rpm has both packages when it is killed between the two.
func TestDNFAfterRPMWasKilled(t *testing.T) {
	x, src := newDNF(t)
	require.NoError(t, x.stage(src))
	x.Put("/rpmdb", x.Get("/rpmdb")+"kubelet 1.36.3-150500.1.10 x86_64 2\nkubelet 1.36.1-150500.1.1 i686 1\n")
	require.NoError(t, x.stage(src))
	require.NoError(t, x.install(target, Programs...))
	require.Equal(t, "v1.36.3,v1.36.3,v1.36.3", x.versions())
	require.NotContains(t, x.Get("/rpmdb"), "kubelet 1.36.1-150500.1.1 x86_64")
	require.Contains(t, x.Get("/rpmdb"), "kubelet 1.36.1-150500.1.1 i686", "it is another one")

	x.Put("/rpmdb", x.Get("/rpmdb")+"kubeadm 1.36.1-150500.1.1 x86_64 3\n")
	x.Put("/etc/dnf/plugins/versionlock.list", "")
	x.PutMode(Dir+"/held.json", `{"manager":"dnf","packages":["kubeadm"]}`, 0o600)
	require.NoError(t, x.stage(src))
	require.Equal(t, "kubeadm-0:1.36.1-150500.1.1.*\n", x.Get("/etc/dnf/plugins/versionlock.list"), "one of the two is locked")
}

func TestDNFTakesNoEpochForOneOfZero(t *testing.T) {
	x, src := newDNF(t)
	x.Put("/epoch", kubelet)
	require.NoError(t, x.stage(src))
	require.NotNil(t, x.find(target))
}

func TestVersionsOfRPM(t *testing.T) {
	// From the oldest to the newest.
	ordered := []string{
		"1.36.3~rc.1-1", "1.36.3-1", "1.36.3-1.1", "1.36.3-1.9", "1.36.3-1.10", "1.36.3^git1-1", "1.36.3a-1", "1.36.3.0-1",
		"1.36.10-1", "1.37-1", "1:1.0-1", "2:0.1-1",
	}
	for i, a := range ordered {
		for j, b := range ordered {
			require.Equal(t, i < j, older(a, b), "%s %s", a, b)
		}
	}
	require.False(t, older("1.036-1", "1.36-1"))
	require.False(t, older("1.36-1", "1.036-1"))
	require.False(t, older("0:1-1", "1-1"))
	require.True(t, older("1.a-1", "1.1-1"))
	require.True(t, older("1.36.3-1", "1.36.3^-1"))
	require.True(t, older("1.36.3~rc.1-1", "1.36.3~rc.1^git1-1"))
	require.Equal(t, []string{"1.36.3-1"}, listed(strings.Repeat("x\n", 3)+"kubelet.x86_64 1.36.3-1 r\nkubelet-x.x86_64 1 r\n", kubelet))
}
