package kubeadm

import (
	"github.com/capi-refit/refit/internal/node"
)

// StaticPods reads a clusterConfiguration: that of a KubeadmConfig's spec, or the ClusterConfiguration of kubeadm's own API, in which
// the fields have the same names. Arguments are sorted by name, since the order of different ones means nothing. Variables that take
// their value from elsewhere are left out.
func StaticPods(configuration map[string]any) node.ControlPlane {
	apiServer := mapping(configuration, "apiServer")
	c := node.ControlPlane{
		APIServer:         component(apiServer),
		ControllerManager: component(mapping(configuration, "controllerManager")),
		Scheduler:         component(mapping(configuration, "scheduler")),
		CertSANs:          texts(apiServer["certSANs"]),
		FeatureGates:      gates(configuration["featureGates"]),
		ImageRepository:   Text(configuration, "imageRepository"),
	}
	etcd := mapping(configuration, "etcd")
	if len(mapping(etcd, "external")) == 0 {
		// kubeadm's default is an etcd of its own.
		local := mapping(etcd, "local")
		e := component(local)
		e.ImageRepository, e.ImageTag = Text(local, "imageRepository"), Text(local, "imageTag")
		e.ServerCertSANs, e.PeerCertSANs = texts(local["serverCertSANs"]), texts(local["peerCertSANs"])
		c.Etcd = &e
	}
	return c
}

func component(m map[string]any) node.Component {
	var c node.Component
	c.ExtraArgs = args(m["extraArgs"])
	SortArgs(c.ExtraArgs)
	for _, m := range items(m["extraEnvs"]) {
		if Carried(m) {
			c.ExtraEnvs = append(c.ExtraEnvs, node.Env{Name: Text(m, "name"), Value: Text(m, "value")})
		}
	}
	for _, m := range items(m["extraVolumes"]) {
		c.ExtraVolumes = append(c.ExtraVolumes, node.ExtraVolume{
			Name: Text(m, "name"), HostPath: Text(m, "hostPath"), MountPath: Text(m, "mountPath"), ReadOnly: m["readOnly"] == true,
			PathType: Text(m, "pathType"),
		})
	}
	return c
}

// Carried reports whether an argument or a variable has a value of its own, and nothing else beside its name.
func Carried(item map[string]any) bool {
	for name, value := range item {
		if _, ok := value.(string); !ok || name != "name" && name != "value" {
			return false
		}
	}
	return true
}

func mapping(m map[string]any, name string) map[string]any {
	inner, _ := m[name].(map[string]any)
	return inner
}

// Text returns the text that a field has; empty if it has none.
func Text(m map[string]any, name string) string {
	s, _ := m[name].(string)
	return s
}

func items(value any) []map[string]any {
	list, _ := value.([]any)
	var out []map[string]any
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func texts(value any) []string {
	list, _ := value.([]any)
	var out []string
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func gates(value any) map[string]bool {
	m, _ := value.(map[string]any)
	if len(m) == 0 {
		return nil
	}
	out := map[string]bool{}
	for name, v := range m {
		if b, ok := v.(bool); ok {
			out[name] = b
		}
	}
	return out
}
