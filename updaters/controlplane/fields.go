package controlplane

import (
	"errors"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/kubeadm"
	"github.com/capi-refit/refit/internal/kubeadmphase"
	"github.com/capi-refit/refit/updaters/kubeadmconfig"
)

// question is about one field.
type question struct {
	field  fieldset.Field
	change fieldset.ObjectChange
	// lists are those that were read for other fields of the change, by dotted path.
	lists map[string]*list
	// version is the Kubernetes that the machine runs in the end, empty if it is not known, and raised reports whether it is another one than
	// before.
	version string
	raised  bool
}

// effect is what the change of a field does to a node.
type effect int

const (
	// harmless changes nothing on the node.
	harmless effect = iota
	// regenerated has the static pods be made again.
	regenerated
	// configured has the kubelet's configuration be made again.
	configured
	// patched has both be made again.
	patched
)

// judgeFunc says what the change of a field does, or why it can't be made in place.
type judgeFunc func(question) (effect, error)

// components are the names of what runs in static pods, where their arguments are.
var components = map[string][]string{
	"kube-apiserver":          {cluster, "apiServer"},
	"kube-controller-manager": {cluster, "controllerManager"},
	"kube-scheduler":          {cluster, "scheduler"},
	"etcd":                    {cluster, "etcd", "local"},
}

// family is what judges all that is at or below a field.
type family struct {
	at    []string
	judge judgeFunc
}

// families are all that this updater judges.
var families = func() []family {
	var all []family
	for program, at := range components {
		for name, judge := range map[string]judgeFunc{"extraArgs": argsOf(program), "extraEnvs": envs, "extraVolumes": volumes} {
			if program == "etcd" {
				judge = ofEtcd(judge)
			}
			all = append(all, family{append(slices.Clone(at), name), ofCluster(judge)})
		}
	}
	for _, section := range []string{kubeadm.Init, kubeadm.Join} {
		all = append(all, family{[]string{section, "patches"}, patchesOf(section)})
	}
	for _, one := range []family{
		{[]string{"apiServer", "certSANs"}, certSANs("apiServer", "certSANs")},
		{[]string{"etcd", "local", "serverCertSANs"}, certSANs("etcd", "local", "serverCertSANs")},
		{[]string{"etcd", "local", "peerCertSANs"}, certSANs("etcd", "local", "peerCertSANs")},
		{[]string{"featureGates"}, featureGates},
		{[]string{"imageRepository"}, imageRepository},
		{[]string{"etcd", "local", "imageRepository"}, etcdImage},
		{[]string{"etcd", "local", "imageTag"}, etcdImage},
	} {
		all = append(all, family{append([]string{cluster}, one.at...), ofCluster(one.judge)})
	}
	return all
}()

// judgeOf returns what judges a field, if it is this updater's. No family is within another.
func judgeOf(f fieldset.Field) (judgeFunc, bool) {
	for _, one := range families {
		if kubeadmconfig.Below(f, one.at...) {
			return one.judge, true
		}
	}
	return nil, false
}

// controlPlane reports whether the machine is a control-plane machine, now or when the change is made.
func (q question) controlPlane() bool {
	return kubeadm.ControlPlane(kubeadmconfig.Mapping(q.change.Desired)) || kubeadm.ControlPlane(kubeadmconfig.Mapping(q.change.Current))
}

// ofCluster judges a part of clusterConfiguration: workers don't read it.
func ofCluster(judge judgeFunc) judgeFunc {
	return func(q question) (effect, error) {
		if !q.controlPlane() {
			return harmless, nil
		}
		return judge(q)
	}
}

// pair is the value of a field before and after.
func (q question) pair(at ...string) (current, desired any) {
	last := len(at) - 1
	return kubeadmconfig.Mapping(q.change.Current, at[:last]...)[at[last]], kubeadmconfig.Mapping(q.change.Desired, at[:last]...)[at[last]]
}

// featureGates judges those of a field: one, or all where the mapping comes or goes as a whole.
func featureGates(q question) (effect, error) {
	current, desired := q.pair(cluster, "featureGates")
	was, _ := current.(map[string]any)
	want, _ := desired.(map[string]any)
	if len(was)+len(want) == 0 {
		return harmless, nil // an empty mapping
	}
	for _, name := range q.gates(was, want) {
		before, after := flag(was, name), flag(want, name)
		if err := kubeadmphase.Gate(q.version, name, before, after, q.raised); err != nil {
			return harmless, err
		}
		if name == kubeadmphase.RootlessControlPlane {
			if err := q.etcdIsBrought(); err != nil {
				return harmless, err
			}
		}
	}
	return regenerated, nil
}

// gates returns the names of the feature gates that the field is about.
func (q question) gates(was, want map[string]any) []string {
	if at := kubeadmconfig.Location(q.field); len(at) > 2 {
		return []string{at[2]}
	}
	names := slices.AppendSeq(slices.Collect(maps.Keys(was)), maps.Keys(want))
	slices.Sort(names)
	return slices.Compact(names)
}

// flag returns what is said of a feature gate, or nil.
func flag(gates map[string]any, name string) *bool {
	if on, ok := gates[name].(bool); ok {
		return &on
	}
	return nil
}

func imageRepository(q question) (effect, error) {
	_, desired := q.pair(cluster, "imageRepository")
	if s, _ := desired.(string); s == "" {
		return harmless, errors.New("without a value Cluster API leaves the former one in kubeadm's configuration in the cluster; " +
			"name the repository to go back to instead, registry.k8s.io for example")
	}
	return regenerated, q.etcdIsBrought() // whose image it is as well
}

// validSAN reports whether kubeadm takes a name for a certificate: an IP address, or a DNS name that may begin with a wildcard.
func validSAN(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	return len(validation.IsDNS1123Subdomain(s)) == 0 || len(validation.IsWildcardDNS1123Subdomain(s)) == 0
}

// certSANs judges the names of a certificate.
func certSANs(at ...string) judgeFunc {
	return func(q question) (effect, error) {
		_, desired := q.pair(append([]string{cluster}, at...)...)
		list, _ := desired.([]any)
		for _, item := range list {
			if s, _ := item.(string); !validSAN(s) {
				return harmless, errors.New("an entry is neither an IP address nor a DNS name, which kubeadm refuses")
			}
		}
		return regenerated, nil
	}
}

func etcdImage(q question) (effect, error) { return regenerated, q.etcdIsBrought() }

// etcdIsBrought returns why kubeadm would not make etcd's static pod again, or nil.
func (q question) etcdIsBrought() error {
	current, desired := q.pair(cluster, "etcd", "local", "imageTag")
	was, _ := current.(string)
	want, _ := desired.(string)
	return kubeadmphase.Etcd(q.version, was, want)
}

// ofEtcd judges a part of etcd's static pod, which kubeadm makes again only if it can compare the versions of etcd.
func ofEtcd(judge judgeFunc) judgeFunc {
	return func(q question) (effect, error) {
		e, err := judge(q)
		if err == nil && e == regenerated {
			err = q.etcdIsBrought()
		}
		return e, err
	}
}

// patchesOf judges the patches of a section. One that the machine does not read means nothing to it.
func patchesOf(section string) judgeFunc {
	return func(q question) (effect, error) {
		if section != kubeadm.Section(kubeadmconfig.Mapping(q.change.Desired)) && section != kubeadm.Section(kubeadmconfig.Mapping(q.change.Current)) {
			return harmless, nil
		}
		_, desired := q.pair(section, "patches")
		patches, _ := desired.(map[string]any)
		for name := range patches {
			if name != "directory" {
				return harmless, errors.New("this version of refit does not know all fields of patches")
			}
		}
		if dir := kubeadm.Text(patches, "directory"); dir != "" && disruption.ValidPath(dir) != nil {
			return harmless, errors.New("the directory is not an absolute, clean path")
		}
		if !q.controlPlane() {
			return configured, nil // of what a worker has, kubeadm patches nothing else
		}
		if patchesKubelet(q.change.Current, section) || patchesKubelet(q.change.Desired, section) {
			return patched, nil
		}
		return regenerated, nil
	}
}

// patchesKubelet reports whether the files of a spec are patches of the kubelet's configuration. Others can be on the machine from its
// image, which the machine sees.
func patchesKubelet(spec fieldset.Spec, section string) bool {
	dir := kubeadm.Text(kubeadmconfig.Mapping(spec, section, "patches"), "directory")
	return dir != "" && slices.ContainsFunc(kubeadmconfig.List(spec, "files"), func(file map[string]any) bool {
		return disruption.IsKubeletPatch(dir, kubeadm.Text(file, "path"))
	})
}
