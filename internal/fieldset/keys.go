package fieldset

import "strings"

// listKeys are the fields by which the items of a list are told apart, by the names of the fields that lead to the list.
type listKeys map[string][]string

func (k listKeys) of(location []string) ([]string, bool) {
	keys, ok := k[strings.Join(location, ".")]
	return keys, ok
}

// kubeadmConfigKeys are the keyed lists of a KubeadmConfig. Cluster API itself takes all of them for atomic; they are
// keyed here so that people are told which file, user or argument it is about.
var kubeadmConfigKeys = func() listKeys {
	keys := listKeys{
		"files": {"path"},
		"users": {"name"},
	}
	for _, c := range []string{"apiServer", "controllerManager", "scheduler", "etcd.local"} {
		for _, list := range []string{"extraArgs", "extraEnvs", "extraVolumes"} {
			keys["clusterConfiguration."+c+"."+list] = []string{"name"}
		}
	}
	for _, c := range []string{"initConfiguration", "joinConfiguration"} {
		keys[c+".nodeRegistration.kubeletExtraArgs"] = []string{"name"}
		keys[c+".nodeRegistration.taints"] = []string{"key", "effect"}
	}
	return keys
}()

// keysOf returns the keyed lists of a kind of object.
func keysOf(s Spec) listKeys {
	if s.Group() == "bootstrap.cluster.x-k8s.io" && s.Kind == "KubeadmConfig" {
		return kubeadmConfigKeys
	}
	return nil
}
