package baseline

import (
	"bytes"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/internal/kubeadm"
	"github.com/capi-refit/refit/internal/node"
)

// kubeadmPaths are where the bootstrap provider puts kubeadm's configuration: for init and join with cloud-init, and with
// Ignition.
var kubeadmPaths = []string{"/run/kubeadm/kubeadm.yaml", "/run/kubeadm/kubeadm-join-config.yaml", "/etc/kubeadm.yml"}

// kubeadmFile is what kubeadm was told. What is nil is not known.
type kubeadmFile struct {
	registration *kubeadm.Options
	// patches is the directory of kubeadm's patches, which is known where the registration is.
	patches string
	// staticPods are known of a machine that kubeadm init has made. One that joined has read them in the cluster.
	staticPods *node.ControlPlane
}

// parseKubeadm reads kubeadm's configuration. What can't be read is not known: cloud-init may have made something else of it.
func parseKubeadm(content []byte) kubeadmFile {
	var f kubeadmFile
	var cluster, initial map[string]any
	for _, text := range documents(content) {
		var doc map[string]any
		if err := yaml.Unmarshal(text, &doc); err != nil {
			continue
		}
		version, _ := doc["apiVersion"].(string)
		if !strings.HasPrefix(version, "kubeadm.k8s.io/") {
			continue
		}
		switch doc["kind"] {
		case "ClusterConfiguration":
			cluster = doc
		case "InitConfiguration":
			initial = doc
			f.registration, f.patches = new(kubeadm.OptionsOf(doc, true)), patchesOf(doc)
		case "JoinConfiguration":
			_, controlPlane := doc["controlPlane"].(map[string]any)
			f.registration, f.patches = new(kubeadm.OptionsOf(doc, controlPlane)), patchesOf(doc)
		}
	}
	if cluster != nil && initial != nil {
		pods := kubeadm.StaticPods(cluster)
		pods.PatchesDirectory = patchesOf(initial)
		f.staticPods = &pods
	}
	return f
}

// patchesOf returns the directory of patches that a document names.
func patchesOf(doc map[string]any) string {
	patches, _ := doc["patches"].(map[string]any)
	dir, _ := patches["directory"].(string)
	return dir
}

// documents splits YAML at the lines that separate documents.
func documents(content []byte) [][]byte {
	var all [][]byte
	var current []byte
	for line := range bytes.Lines(content) {
		if strings.TrimRight(string(line), " \t\r\n") == "---" {
			all, current = append(all, current), nil
			continue
		}
		current = append(current, line...)
	}
	return append(all, current)
}
