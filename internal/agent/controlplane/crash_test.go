package controlplane

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
)

// dying replaces manifests as kubeadm does, the old one moved away before the new one is moved in, and dies after so many moves. The
// certificate is moved in file by file.
const dying = `
step() { n=$(cat $REFIT_ROOT/moves); [ $n -gt 0 ] || kill -9 $$; echo $((n-1)) > $REFIT_ROOT/moves; }
m=$REFIT_ROOT/etc/kubernetes/manifests
case "$*" in
upgrade*)
	for f in $REFIT_ROOT/next/*.yaml; do
		step; [ -e $m/$(basename $f) ] || exit 1; mv $m/$(basename $f) $REFIT_ROOT/old.yaml
		step; cp $f $m/$(basename $f)
	done;;
init*)
	dir=$REFIT_ROOT$(sed -n 's/^certificatesDir: //p' $REFIT_ROOT${5#--config=})
	step; cp $REFIT_ROOT/next/apiserver.key $dir/
	step; cp $REFIT_ROOT/next/apiserver.crt $dir/;;
esac
step
`

func TestDeathAfterEachMove(t *testing.T) {
	want := spec(func(c *node.ControlPlane) {
		quota(c)
		audit(c)
		arg(&c.Scheduler, "v", "4")
		c.CertSANs = []string{"a.example"}
	})
	deaths := 0
	for moves := 0; ; moves++ {
		x := newFixture(t)
		x.Program("kubeadm", dying)
		x.Config = quotaConfig + "apiServer:\n  certSANs: [a.example]\n  extraArgs: [{name: audit-log-path, value: /var/log/audit}]\n" +
			"scheduler: {extraArgs: [{name: v, value: \"4\"}]}\n"
		cert, key := x.CA.Issue("kube-apiserver", "kubernetes", "127.0.0.1", "a.example")
		x.Put("/next/apiserver.crt", string(cert))
		x.Put("/next/apiserver.key", string(key))
		c := x.change(spec(nil), want)
		x.Put("/next/etcd.yaml", x.manifest(etcdMember, "--quota-backend-bytes=8589934592"))
		x.Put("/next/kube-apiserver.yaml", x.manifest(apiServer, "--audit-log-path=/var/log/audit"))
		x.Put("/next/kube-scheduler.yaml", x.manifest(scheduler, "--v=4"))
		before := map[string]string{}
		for _, name := range pods {
			before[name] = x.Get(manifestPath(name))
		}

		x.Put("/moves", strconv.Itoa(moves))
		_, err := x.kind.Make(t.Context(), c)
		died := err != nil
		if died {
			require.ErrorContains(t, err, "signal: killed", "after %d moves", moves)
			deaths++
		}
		x.Put("/moves", "1000")
		if moves%2 == 0 { // another process takes the change up
			c.Again = true
			_, err = x.kind.Make(t.Context(), c)
			require.NoError(t, err, "after %d moves", moves)
			require.Empty(t, x.ask(want, want).Drift, "after %d moves", moves)
			require.Equal(t, string(cert)+string(key), x.Get("/etc/kubernetes/pki/apiserver.crt")+x.Get("/etc/kubernetes/pki/apiserver.key"))
		}
		require.NoError(t, x.kind.Undo(t.Context(), c))
		for _, name := range pods {
			require.Equal(t, before[name], x.Get(manifestPath(name)), "%s after %d moves", name, moves)
		}
		require.Empty(t, x.ask(spec(nil), spec(nil)).Drift)
		if !died {
			break
		}
	}
	require.Equal(t, 10, deaths, "six moves of manifests, two of the certificate, and the end of each")
}
