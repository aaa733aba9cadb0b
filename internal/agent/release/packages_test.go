package release

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
)

// Stand-ins for apt and dpkg. What is installed is in /dpkg, what the repository has in /pool, holds in /holds. A package is its archive of
// files, and its name says the rest. Somebody else has dpkg for as many calls as /busy says, and with /broken another package can't be set up.
const (
	dpkgBusy = `
n=$(cat $REFIT_ROOT/busy 2>/dev/null)
if [ 0$n -gt 0 ]; then
	echo $((n-1)) >$REFIT_ROOT/busy
	echo "dpkg: error: dpkg frontend lock was locked by another process with pid 2425
Note: removing the lock file is always wrong, and can end up damaging the
locked area and the entire system. See <https://wiki.debian.org/Teams/Dpkg/FAQ>." >&2
	[ $0 = $REFIT_ROOT/usr/bin/dpkg ] && exit 2
	echo "E: Sub-process dpkg --set-selections returned an error code (2)
E: Executing dpkg failed. Are you root?" >&2
	exit 100
fi`
	dpkgBroken = `
if [ -e $REFIT_ROOT/broken ]; then
	echo "dpkg: error processing package grub-pc (--configure):
Errors were encountered while processing:
 grub-pc" >&2
	exit 1
fi`
	dpkgQuery = `cat $REFIT_ROOT/dpkg`
	dpkgDeb   = `
for f; do :; done
case $1 in
--show) basename $f .deb | { IFS=_ read -r name version arch; printf '%s %s' $name $version; };;
--fsys-tarfile) cat $f;;
esac`
	dpkg = `
case $1 in
--compare-versions) last=$(printf '%s\n' $2 $4 | sort -V | tail -n1); case $3 in lt) [ $2 != $4 -a $last = $4 ];; ge) [ $2 = $4 -o $last = $2 ];; esac; exit;;
esac` + dpkgBusy + `
rm -f $REFIT_ROOT/var/lib/dpkg/updates/*
sed -i 's/ \(half-configured\|triggers-pending\)$/ installed/' $REFIT_ROOT/dpkg` + dpkgBroken
	aptCache = `for name; do :; done; cat $REFIT_ROOT/madison-$name`
	aptMark  = `
verb=$1; shift
[ -e $REFIT_ROOT/fail-$verb ] && exit 1
touch $REFIT_ROOT/holds
[ $verb = showhold ] && exec cat $REFIT_ROOT/holds` + dpkgBusy + `
case $verb in
hold) for p; do grep -q "^$p$" $REFIT_ROOT/holds || echo $p >>$REFIT_ROOT/holds; done;;
unhold) for p; do sed -i "/^$p$/d" $REFIT_ROOT/holds; done;;
esac`
	aptGet = `
case "$*" in
update*) exit 0;;
*--download-only*)
	for a; do case $a in Dir::Cache::archives=*) dir=${a#*=};; esac; done
	for a; do case $a in ku*=*)
		cp $REFIT_ROOT/pool/$(echo $a | tr = _)_amd64.deb $dir/ || { echo "E: Version for $a was not found" >&2; exit 100; };;
	esac; done
	[ -e $REFIT_ROOT/pool/needed.deb ] && cp $REFIT_ROOT/pool/needed.deb $dir/cri-tools_1.36.0-1_amd64.deb
	exit 0;;
esac
[ -n "$(ls $REFIT_ROOT/var/lib/dpkg/updates 2>/dev/null)" ] && { echo "E: dpkg was interrupted" >&2; exit 100; }
[ "$SYSTEMD_OFFLINE $NEEDRESTART_SUSPEND $DEBIAN_FRONTEND" = "1 1 noninteractive" ] || exit 99
for a; do case $a in *.deb)
	basename $a .deb | { IFS=_ read -r name version arch
	grep -q "^$name$" $REFIT_ROOT/holds && { echo "E: held" >&2; exit 100; }
	[ -e $REFIT_ROOT/fail-install-$name ] && { echo "E: no space" >&2; exit 100; }
	sed -i "/^$name /d" $REFIT_ROOT/dpkg; echo $name $version installed >>$REFIT_ROOT/dpkg
	tar -xf $a -C $REFIT_ROOT; } || exit;;
esac; done` + dpkgBroken
)

func newAPT(t *testing.T) (*fixture, node.Source) {
	t.Helper()
	x := newFixture(t)
	for name, text := range map[string]string{
		"dpkg-query": dpkgQuery, "dpkg-deb": dpkgDeb, "dpkg": dpkg, "apt-cache": aptCache, "apt-mark": aptMark, "apt-get": aptGet,
	} {
		x.script(name, text)
	}
	x.Put("/holds", "kubelet\nkubeadm\nlinux-image\n")
	x.Put("/dpkg", "kubeadm 1.36.1-1.1 installed\nkubelet 1.36.1-1.1 installed\nkubectl 1.36.1-1.1 installed\nold 1 config-files\n")
	for _, name := range Programs {
		table := ""
		for _, v := range []string{"1.36.1-1.1", "1.36.3-1.10", "1.36.3-1.9", "1.36.4-1.1"} {
			table += fmt.Sprintf("   %s | %s | https://pkgs.example.com/deb  Packages\n", name, v)
		}
		x.Put("/madison-"+name, table+name+" | 1.36.3-9.9 | https://pkgs.example.com/deb  Sources\n")
		x.Put("/pool/"+name+"_1.36.3-1.10_amd64.deb", deb(t, name, target))
		x.Put("/pool/"+name+"_1.36.1-1.1_amd64.deb", deb(t, name, before))
	}
	return x, node.Source{Name: "inside", Version: target, Packages: &node.Packages{
		Manager: node.APT, PackageVersion: "{number}-*", Key: "the key",
		Repository: "deb [signed-by={keyring}] https://pkgs.example.com/{minor}/deb/ /",
	}}
}

// deb is the archive of a package's files.
func deb(t *testing.T, name, version string) string {
	return tarred(t, packed{name: "./usr/bin/" + name, content: program(name, version), mode: 0o755},
		packed{name: "./usr/share/bash-completion/completions/" + name, content: "completion", mode: 0o644})
}

// shows keeps those of the calls that begin so.
func shows(calls []string, prefix string) []string {
	var all []string
	for _, c := range calls {
		if strings.HasPrefix(c, prefix) {
			all = append(all, c)
		}
	}
	return all
}

func TestAPT(t *testing.T) {
	x, src := newAPT(t)
	src.Proxy, src.NoProxy = "http://me:secret@proxy:3128", "example.org"
	require.Equal(t, []string{"package kubeadm v1.36.3", "package kubelet v1.36.3"}, x.missing(src))
	require.NoError(t, x.stage(src))
	require.Empty(t, x.missing(src))
	require.Equal(t, &Release{Version: target, Kubeadm: x.Path(Dir + "/v1.36.3/kubeadm"), Packages: true}, x.find(target))
	require.NotNil(t, x.find(before))
	require.Equal(t, "the key", x.Get(Dir+"/v1.36.3/repository.asc"))
	require.Equal(t, "deb [signed-by="+x.Path(Dir+"/v1.36.3/repository.asc")+"] https://pkgs.example.com/v1.36/deb/ /\n", x.Get(Dir+"/v1.36.3/repository.list"))
	require.Equal(t, "(missing)", x.Get(Dir+"/v1.36.3/kubelet"), "it is in its package")
	calls := x.calls()
	require.NotContains(t, strings.Join(calls, ""), "secret")
	update := shows(calls, "apt-get update")
	require.Len(t, update, 1)
	require.Contains(t, update[0], "Dir::Etc::sourcelist="+x.Path(Dir+"/v1.36.3/repository.list")+" -o Dir::Etc::sourceparts=/dev/null ")
	require.Empty(t, shows(calls, "apt-mark"), "staging disturbs nothing")
	require.Equal(t, "v1.36.1,v1.36.1,v1.36.1", x.versions())

	require.NoError(t, x.install(target, kubeadm))
	require.Equal(t, "v1.36.3,v1.36.1,v1.36.1", x.versions())
	calls = x.calls()
	require.Equal(t, []string{"apt-mark showhold", "apt-mark unhold kubeadm", "apt-mark hold kubeadm"}, shows(calls, "apt-mark"))
	require.NoError(t, x.install(target, kubeadm))
	require.Empty(t, shows(x.calls(), "apt-"), "nothing is done twice")

	require.NoError(t, x.install(target, kubelet, kubectl))
	require.Equal(t, "v1.36.3,v1.36.3,v1.36.3", x.versions())
	require.ElementsMatch(t, []string{"kubelet", "kubeadm", "linux-image"}, strings.Fields(x.Get("/holds")), "kubectl was not held")
	require.NoError(t, x.install(before, Programs...))
	require.Equal(t, "v1.36.1,v1.36.1,v1.36.1", x.versions())
	require.Contains(t, x.Get("/dpkg"), "kubelet 1.36.1-1.1 installed")
	require.ElementsMatch(t, []string{"kubelet", "kubeadm", "linux-image"}, strings.Fields(x.Get("/holds")))
}

func TestAPTCannotStage(t *testing.T) {
	for name, c := range map[string]struct {
		change func(x *fixture, src *node.Source)
		err    string
	}{
		"no such version":      {func(_ *fixture, src *node.Source) { src.Packages.PackageVersion = "{number}-2*" }, `no version of package kubeadm matches "1.36.3-2*"`},
		"no version":           {func(_ *fixture, src *node.Source) { src.Packages.PackageVersion = "" }, `no version of package kubeadm matches ""`},
		"no pattern":           {func(_ *fixture, src *node.Source) { src.Packages.PackageVersion = "[" }, `"[" is not a pattern`},
		"no package manager":   {func(_ *fixture, src *node.Source) { src.Packages.Manager = "zypper" }, `"zypper" is not known`},
		"trust in anybody":     {func(_ *fixture, src *node.Source) { src.Packages.Repository = "deb [trusted=yes] http://x /" }, "need no signature"},
		"trust in other words": {func(_ *fixture, src *node.Source) { src.Packages.Repository = "Types: deb\nTrusted: enable\n" }, "need no signature"},
		"a package that is gone": {func(x *fixture, _ *node.Source) {
			require.NoError(x, os.Remove(x.Path("/pool/kubelet_1.36.3-1.10_amd64.deb")))
		}, "was not found"},
		"another version within": {func(x *fixture, _ *node.Source) {
			x.Put("/pool/kubelet_1.36.3-1.10_amd64.deb", deb(x.T, kubelet, "v1.36.2"))
		}, `kubelet is of version "v1.36.2"`},
		"no program within": {func(x *fixture, _ *node.Source) {
			x.Put("/pool/kubelet_1.36.3-1.10_amd64.deb", deb(x.T, "kubelet-extra", target))
		}, "has no program of that name"},
		"a kubelet of no package": {func(x *fixture, _ *node.Source) { x.Put("/dpkg", "kubelet 1.36.0-1.1 config-files\n") },
			"not of a package"},
		"a password in what apt says": {func(x *fixture, _ *node.Source) {
			x.script("apt-get", "echo 'E: https://me:secret@pkgs.example.com is away' >&2; exit 100")
		}, "https://pkgs.example.com is away"},
	} {
		t.Run(name, func(t *testing.T) {
			x, src := newAPT(t)
			c.change(x, &src)
			err := x.stage(src)
			require.ErrorContains(t, err, c.err)
			require.NotContains(t, err.Error(), "secret")
			require.Nil(t, x.find(target))
		})
	}
}

func TestAPTFallsBackToCopies(t *testing.T) {
	x, src := newAPT(t)
	require.NoError(t, os.Remove(x.Path("/pool/kubelet_1.36.1-1.1_amd64.deb")))
	require.NoError(t, x.stage(src))
	require.Contains(t, strings.Join(x.told, "\n"), "the packages of v1.36.1 can't be had any more")
	require.NoError(t, x.install(target, Programs...))
	require.NoError(t, x.install(before, Programs...))
	require.Equal(t, "v1.36.1,v1.36.1,v1.36.1", x.versions())
	require.NoError(t, x.install(target, Programs...), "dpkg takes it for installed, which it is not")
	require.Equal(t, "v1.36.3,v1.36.3,v1.36.3", x.versions())
}

func TestAPTBringsWhatPackagesNeed(t *testing.T) {
	x, src := newAPT(t)
	x.Put("/pool/needed.deb", tarred(t, packed{name: "./usr/bin/crictl", content: "#!", mode: 0o755}))
	require.NoError(t, x.stage(src))
	require.NoError(t, x.install(target, kubeadm))
	require.Equal(t, "#!", x.Get("/usr/bin/crictl"))
	x.PutMode(Dir+"/v1.36.3/packages/kubelet_1.36.3-1.10_amd64.deb", x.Get("/pool/kubelet_1.36.1-1.1_amd64.deb"), 0o600)
	require.ErrorContains(t, x.install(target, kubelet), "no longer what was staged")
}

func TestAPTListsOfOtherForms(t *testing.T) {
	x, src := newAPT(t)
	src.Packages.Repository = "Types: deb\nURIs: file:/srv/mirror\nSuites: /\nSigned-By: {keyring}\n"
	require.NoError(t, x.stage(src))
	require.Contains(t, x.Get(Dir+"/v1.36.3/repository.sources"), "URIs: copy:/srv/mirror\n")

	x, src = newAPT(t)
	src.Packages.Repository = ""
	require.NoError(t, x.stage(src))
	require.NotContains(t, strings.Join(x.calls(), "\n"), "sourcelist", "the node's own repositories have it")

	for text, want := range map[string]string{
		"deb file:/srv/x ./":                       "deb copy:/srv/x ./",
		"deb [signed-by=/a arch=x] file:/srv/x ./": "deb [signed-by=/a arch=x] copy:/srv/x ./",
		"deb http://example.com/file:x ./":         "deb http://example.com/file:x ./",
		"deb file:/a ./\ndeb file:/b ./":           "deb copy:/a ./\ndeb copy:/b ./",
	} {
		a := apt{packages{job: &job{source: source{node.Source{Packages: &node.Packages{Repository: text}}}}}}
		require.Equal(t, want, a.copying().Repository)
	}
}

// Whichever call of a package manager's programs fails or is killed, the next installation gets there, and the locks are as they were.
func TestInstallingPackagesSurvivesDeathAnywhere(t *testing.T) {
	for name, c := range map[string]struct {
		make  func(t *testing.T) (*fixture, node.Source)
		locks string
		want  []string
		least int
	}{
		"apt": {newAPT, "/holds", []string{"kubelet", "kubeadm", "linux-image"}, 5},
		"dnf": {newDNF, "/etc/dnf/plugins/versionlock.list", []string{"kubelet-0:1.36.3-150500.1.10.*"}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			deaths := 0
			for n := 1; ; n++ {
				x, src := c.make(t)
				if name == "dnf" {
					x.Put(c.locks, "kubelet-0:1.36.1-150500.1.1.*\n")
				}
				require.NoError(t, x.stage(src))
				x.calls()
				x.Put("/die", fmt.Sprint(n))
				err := x.install(target, Programs...)
				if err == nil && len(x.calls()) < n {
					break
				}
				deaths++
				require.NoError(t, os.Remove(x.Path("/die")))
				require.NoError(t, x.install(target, Programs...), n)
				require.Equal(t, "v1.36.3,v1.36.3,v1.36.3", x.versions(), n)
				require.ElementsMatch(t, c.want, strings.Fields(x.Get(c.locks)), n)
				require.Equal(t, "(missing)", x.Get(Dir+"/held.json"), n)
			}
			require.GreaterOrEqual(t, deaths, c.least)
		})
	}
}
