// Package staticpod looks after pods that the kubelet runs from files: it reads their manifests, and waits until the kubelet has
// replaced the pods of those that were changed.
//
// What the node runs is seen at the API server, where the kubelet mirrors each static pod, with the kubelet's own credentials. A
// mirror carries a hash of its manifest (annotation kubernetes.io/config.hash), so a pod of the old manifest, which runs on for a
// while, can't be taken for one of the new. The hash can't be computed here, since the kubelet takes it of its own internal types:
// it is noted before anything is written, and has to be another one afterwards.
package staticpod

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
)

// Dir is where kubeadm has the kubelet look for manifests. The kubelet passes over names that begin with a dot, when it lists the
// directory and when it is told of changes (pkg/kubelet/config/file.go and file_linux.go), and so over the temporary files that the
// agent writes beside those they replace.
const Dir = disruption.StaticPods

// Pod is as much of a pod as is read here.
type Pod struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`
	Status     struct {
		Phase      string `json:"phase"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
		ContainerStatuses []ContainerStatus `json:"containerStatuses"`
	} `json:"status"`
}

// Metadata is that of a pod.
type Metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	Annotations       map[string]string `json:"annotations"`
	DeletionTimestamp *time.Time        `json:"deletionTimestamp"`
}

// Spec is that of a pod.
type Spec struct {
	Containers []Container `json:"containers"`
	Volumes    []Volume    `json:"volumes"`
}

// Container is one of a pod.
type Container struct {
	Name    string   `json:"name"`
	Image   string   `json:"image"`
	Command []string `json:"command"`
	Args    []string `json:"args"`
	Env     []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
	VolumeMounts []struct {
		Name      string `json:"name"`
		MountPath string `json:"mountPath"`
		ReadOnly  bool   `json:"readOnly"`
	} `json:"volumeMounts"`
}

// Volume is one of a pod. Other sources than directories and files of the node are not read.
type Volume struct {
	Name     string `json:"name"`
	HostPath *struct {
		Path string `json:"path"`
		Type string `json:"type"`
	} `json:"hostPath"`
}

// Manifest is a file from which the kubelet runs a pod.
type Manifest struct {
	Pod Pod
	// Digest is that of what the file says, however it is written: a comment does not count, and does not for the kubelet.
	Digest string
}

// Parse reads a manifest as the kubelet does: the first document of YAML, or JSON. An error does not quote it.
func Parse(data []byte) (Manifest, error) {
	var fields map[string]any
	if err := yaml.Unmarshal(data, &fields); err != nil {
		return Manifest{}, errors.New("it is not YAML")
	}
	canonical, err := json.Marshal(fields) // keys are sorted
	if err != nil {
		return Manifest{}, errors.New("it can't be written as JSON")
	}
	var m Manifest
	if err := json.Unmarshal(canonical, &m.Pod); err != nil {
		return Manifest{}, errors.New("its fields are not those of a pod")
	}
	switch p := &m.Pod; {
	case p.APIVersion != "v1" || p.Kind != "Pod":
		return Manifest{}, errors.New("it is not of apiVersion v1 and kind Pod")
	case p.Metadata.Name == "":
		return Manifest{}, errors.New("it has no metadata.name")
	case len(p.Spec.Containers) == 0:
		return Manifest{}, errors.New("it has no containers")
	case p.Metadata.Namespace == "":
		p.Metadata.Namespace = "default"
	}
	sum := sha256.Sum256(canonical)
	m.Digest = hex.EncodeToString(sum[:])
	return m, nil
}

// Check returns an error if content must not be written to p, because the kubelet would look there for a pod and find none. What
// is not of its directory is not judged.
func Check(p string, content []byte) error {
	if path.Dir(p) != Dir || strings.HasPrefix(path.Base(p), ".") {
		return nil
	}
	if _, err := Parse(content); err != nil {
		return fmt.Errorf("%s would not be a static pod: %w; the kubelet takes each file in %s for the manifest of one", p, err, Dir)
	}
	return nil
}

// Read returns the manifest at p, or nil if there is no such file.
func Read(r host.Root, p string) (*Manifest, error) {
	data, state, err := r.ReadFile(p)
	if err != nil || !state.Exists {
		return nil, err
	}
	m, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s is not the manifest of a pod: %w", p, err)
	}
	return &m, nil
}

// List returns the manifests of the node by path. Files that are none are passed over, as the kubelet does.
func List(r host.Root) (map[string]Manifest, error) {
	names, err := Files(r)
	if err != nil {
		return nil, err
	}
	all := map[string]Manifest{}
	for _, p := range names {
		data, state, err := r.ReadFile(p)
		if err != nil || !state.Exists {
			continue
		}
		if m, err := Parse(data); err == nil {
			all[p] = m
		}
	}
	return all, nil
}

// Files returns the paths in which the kubelet looks for manifests.
func Files(r host.Root) ([]string, error) {
	entries, err := r.ReadDir(Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !e.IsDir() {
			paths = append(paths, path.Join(Dir, e.Name()))
		}
	}
	return paths, nil
}
