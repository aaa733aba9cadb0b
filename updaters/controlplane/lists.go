package controlplane

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/kubeadm"
	"github.com/capi-refit/refit/updaters/kubeadmconfig"
)

// Why arguments of the control plane are not refit's to change.
const (
	becauseOthers   = "the other machines of the control plane and the nodes have the same in their configuration and rely on it"
	becausePlace    = "it says where the component is reached, and others are told elsewhere"
	becauseCerts    = "it names keys or certificates that kubeadm makes and the others trust"
	becauseData     = "it says where the cluster's data are"
	becauseMembers  = "it says which etcd member this is, and how the members find each other"
	becauseElection = "without an election of a leader two of them would act at once"
	becauseNetwork  = "addresses of that network are given out already"
)

// owned are the arguments that are not changed on a running node, by program. Most are kubeadm's own, and are wired to files and
// endpoints that it makes.
var owned = map[string]map[string]string{
	"kube-apiserver": {
		"advertise-address": becausePlace, "bind-address": becausePlace, "secure-port": becausePlace,
		"etcd-servers": becauseData, "etcd-servers-overrides": becauseData, "etcd-prefix": becauseData, "storage-backend": becauseData,
		"etcd-cafile": becauseCerts, "etcd-certfile": becauseCerts, "etcd-keyfile": becauseCerts, "client-ca-file": becauseCerts,
		"tls-cert-file": becauseCerts, "tls-private-key-file": becauseCerts, "kubelet-client-certificate": becauseCerts,
		"kubelet-client-key": becauseCerts, "requestheader-client-ca-file": becauseCerts, "proxy-client-cert-file": becauseCerts,
		"proxy-client-key-file": becauseCerts, "service-account-key-file": becauseCerts, "service-account-signing-key-file": becauseCerts,
		"service-cluster-ip-range": becauseNetwork,
	},
	"kube-controller-manager": {
		"kubeconfig": becauseCerts, "authentication-kubeconfig": becauseCerts, "authorization-kubeconfig": becauseCerts,
		"client-ca-file": becauseCerts, "requestheader-client-ca-file": becauseCerts, "root-ca-file": becauseCerts,
		"cluster-signing-cert-file": becauseCerts, "cluster-signing-key-file": becauseCerts, "service-account-private-key-file": becauseCerts,
		"secure-port": becausePlace, "leader-elect": becauseElection, "cluster-name": becauseOthers,
		"allocate-node-cidrs": becauseNetwork, "cluster-cidr": becauseNetwork, "service-cluster-ip-range": becauseNetwork,
		"node-cidr-mask-size": becauseNetwork, "node-cidr-mask-size-ipv4": becauseNetwork, "node-cidr-mask-size-ipv6": becauseNetwork,
	},
	"kube-scheduler": {
		"kubeconfig": becauseCerts, "authentication-kubeconfig": becauseCerts, "authorization-kubeconfig": becauseCerts,
		"secure-port": becausePlace, "leader-elect": becauseElection,
	},
	"etcd": {
		"data-dir": becauseData, "wal-dir": becauseData,
		"name": becauseMembers, "initial-cluster": becauseMembers, "initial-cluster-state": becauseMembers, "initial-cluster-token": becauseMembers,
		"initial-advertise-peer-urls": becauseMembers, "listen-peer-urls": becauseMembers, "advertise-client-urls": becauseMembers,
		"listen-client-urls": becauseMembers, "discovery": becauseMembers, "discovery-srv": becauseMembers, "force-new-cluster": becauseMembers,
		"cert-file": becauseCerts, "key-file": becauseCerts, "trusted-ca-file": becauseCerts, "client-cert-auth": becauseCerts,
		"peer-cert-file": becauseCerts, "peer-key-file": becauseCerts, "peer-trusted-ca-file": becauseCerts, "peer-client-cert-auth": becauseCerts,
		"auto-tls": becauseCerts, "peer-auto-tls": becauseCerts,
	},
}

var errForm = errors.New("it is not of the form that this version of refit knows")

// touched returns the items of the field's list that it is about, before and after: the one that it belongs to, or all that differ
// where the list is one field.
func (q question) touched() ([]map[string]any, error) {
	at := kubeadmconfig.Location(q.field)
	last := slices.IndexFunc(at, func(name string) bool {
		return name == "extraArgs" || name == "extraEnvs" || name == "extraVolumes"
	})
	name, single := kubeadmconfig.Item(q.field, "name")
	if !single && len(at) > last+1 {
		return nil, errForm // a mapping, as API versions before had it
	}
	l := q.list(at[:last+1])
	if single {
		return l.byName[name], l.err
	}
	return l.items, l.err
}

// list is a list of items with names, before and after: first all that were, and then all that are to be.
type list struct {
	items  []map[string]any
	byName map[string][]map[string]any
	err    error
}

// list returns the list to which the names lead. It is read once for all fields.
func (q question) list(at []string) *list {
	path := strings.Join(at, ".")
	l, ok := q.lists[path]
	if ok {
		return l
	}
	l = &list{byName: map[string][]map[string]any{}}
	q.lists[path] = l
	current, desired := q.pair(at...)
	for _, value := range []any{current, desired} {
		items, err := itemsOf(value)
		if err != nil {
			*l = list{err: err}
			return l
		}
		for _, m := range items {
			name := kubeadm.Text(m, "name")
			l.items, l.byName[name] = append(l.items, m), append(l.byName[name], m)
		}
	}
	return l
}

// itemsOf returns the items of a list, or of one that is absent.
func itemsOf(value any) ([]map[string]any, error) {
	entries, ok := value.([]any)
	if !ok && value != nil {
		return nil, errForm
	}
	out := make([]map[string]any, 0, len(entries))
	for _, e := range entries {
		m, ok := e.(map[string]any)
		if !ok || kubeadm.Text(m, "name") == "" {
			return nil, errForm
		}
		out = append(out, m)
	}
	return out, nil
}

// listJudge judges a list, item by item.
func listJudge(judge func(item map[string]any) error) judgeFunc {
	return func(q question) (effect, error) {
		all, err := q.touched()
		if err != nil || len(all) == 0 {
			return harmless, err // an empty list that comes or goes
		}
		for _, item := range all {
			if err := judge(item); err != nil {
				return harmless, err
			}
		}
		return regenerated, nil
	}
}

func argsOf(program string) judgeFunc {
	judge := listJudge(func(item map[string]any) error {
		name := kubeadm.Text(item, "name")
		if !kubeadm.Carried(item) {
			return errForm
		}
		if why, ok := owned[program][name]; ok {
			return fmt.Errorf("the argument %s of %s is not changed on a running node: %s", name, program, why)
		}
		if !kubeadm.ArgName.MatchString(name) {
			return errors.New("the name of an argument is written in small letters, digits and single dashes, without dashes before it")
		}
		return nil
	})
	return func(q question) (effect, error) {
		if q.field.Operation == fieldset.Reordered {
			return harmless, nil // arguments of different names
		}
		return judge(q)
	}
}

var envs = listJudge(func(item map[string]any) error {
	switch name := kubeadm.Text(item, "name"); {
	case !kubeadm.Carried(item):
		return fmt.Errorf("the variable %s takes its value from elsewhere, or has fields that this version of refit does not know", name)
	case len(validation.IsEnvVarName(name)) > 0:
		return errors.New("a variable's name is not of the form that Kubernetes takes")
	default:
		return nil
	}
})

// pathTypes are those of a hostPath volume.
var pathTypes = []string{"", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"}

var volumes = listJudge(func(item map[string]any) error {
	name := kubeadm.Text(item, "name")
	for field, value := range item {
		_, isText := value.(string)
		_, isFlag := value.(bool)
		known := isText && slices.Contains([]string{"name", "hostPath", "mountPath", "pathType"}, field) || isFlag && field == "readOnly"
		if !known {
			return errForm
		}
	}
	switch {
	case len(validation.IsDNS1123Label(name)) > 0:
		return errors.New("a volume's name is not of the form that Kubernetes takes")
	case disruption.ValidPath(kubeadm.Text(item, "hostPath")) != nil, disruption.ValidPath(kubeadm.Text(item, "mountPath")) != nil:
		return fmt.Errorf("a path of volume %s is not absolute and clean", name)
	case !slices.Contains(pathTypes, kubeadm.Text(item, "pathType")):
		return fmt.Errorf("the pathType of volume %s is none that Kubernetes knows", name)
	default:
		return nil
	}
})
