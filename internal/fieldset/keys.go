package fieldset

import "strings"

// listKeys are the fields by which the items of lists are told apart, as a tree of the names of the fields that lead to the
// lists, items of lists left out. Nil has none.
type listKeys struct {
	// keys are those of the list here. Nil: it is not keyed.
	keys  []string
	below map[string]*listKeys
}

// field returns the keys at and below a field.
func (k *listKeys) field(name string) *listKeys {
	if k == nil {
		return nil
	}
	return k.below[name]
}

// of returns the keys of the list here. Nil: it is not keyed.
func (k *listKeys) of() []string {
	if k == nil {
		return nil
	}
	return k.keys
}

// add adds a keyed list at a dotted path.
func (k *listKeys) add(path string, keys ...string) {
	for name := range strings.SplitSeq(path, ".") {
		if k.below == nil {
			k.below = map[string]*listKeys{}
		}
		if k.below[name] == nil {
			k.below[name] = &listKeys{}
		}
		k = k.below[name]
	}
	k.keys = keys
}

// kubeadmConfigKeys are the keyed lists of a KubeadmConfig. Cluster API itself takes all of them for atomic; they are
// keyed here so that people are told which file, user or argument it is about.
var kubeadmConfigKeys = func() *listKeys {
	keys := &listKeys{}
	keys.add("files", "path")
	keys.add("users", "name")
	for _, c := range []string{"apiServer", "controllerManager", "scheduler", "etcd.local"} {
		for _, list := range []string{"extraArgs", "extraEnvs", "extraVolumes"} {
			keys.add("clusterConfiguration."+c+"."+list, "name")
		}
	}
	for _, c := range []string{"initConfiguration", "joinConfiguration"} {
		keys.add(c+".nodeRegistration.kubeletExtraArgs", "name")
		keys.add(c+".nodeRegistration.taints", "key", "effect")
	}
	return keys
}()

// keysOf returns the keyed lists of a kind of object.
func keysOf(s Spec) *listKeys {
	if s.Group() == "bootstrap.cluster.x-k8s.io" && s.Kind == "KubeadmConfig" {
		return kubeadmConfigKeys
	}
	return nil
}
