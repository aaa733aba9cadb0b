package probe

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/capi-refit/refit/internal/agent/etcd"
	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/staticpod"
)

// etcdManifest is the static pod of etcd, as kubeadm names it.
const etcdManifest = staticpod.Dir + "/etcd.yaml"

// askEtcd asks the etcd member on this node whether it is well and not behind, by the certificate that kubeadm makes for that.
func askEtcd(ctx context.Context, r host.Root) error {
	m, err := staticpod.Read(r, etcdManifest)
	if err != nil {
		return err
	}
	if m == nil {
		return ErrAbsent
	}
	endpoint := ""
	for u := range strings.SplitSeq(cmp.Or(argument(m, "listen-client-urls"), "https://127.0.0.1:2379"), ",") {
		if endpoint == "" || strings.Contains(u, "//127.0.0.1:") || strings.Contains(u, "//[::1]:") {
			endpoint = u
		}
	}
	dir := path.Dir(cmp.Or(argument(m, "trusted-ca-file"), "/etc/kubernetes/pki/etcd/ca.crt"))
	if _, err := r.Stat(path.Join(dir, etcd.ClientCertificate)); errors.Is(err, fs.ErrNotExist) {
		return ErrAbsent // an etcd that kubeadm did not make can't be asked
	}
	member, err := etcd.Connect(r, endpoint, dir)
	if err != nil {
		return err
	}
	return member.Current(ctx)
}

// argument returns what a pod's program is told by --name=value, or "". Of several the last one counts.
func argument(m *staticpod.Manifest, name string) (value string) {
	for _, container := range m.Pod.Spec.Containers {
		for _, arg := range append(container.Command, container.Args...) {
			if v, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
				value = v
			}
		}
	}
	return value
}
