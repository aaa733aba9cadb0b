package staticpod

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/internal/agent/host"
)

const (
	hashAnnotation   = "kubernetes.io/config.hash"
	sourceAnnotation = "kubernetes.io/config.source"
	kubeletConfig    = "/var/lib/kubelet/config.yaml"
	// look is how often the pods are looked at. They are done when two looks in a row find so.
	look = 2 * time.Second
)

// Note is what the static pods of a node were before a change, by the path of the manifest.
type Note map[string]Noted

// Unhashed returns a note for a kubelet of another version, which can have other hashes for the same manifests: Await then demands of each
// pod that was Ready that it is, whatever its hash.
func (n Note) Unhashed() Note {
	out := Note{}
	for p, was := range n {
		out[p] = Noted{Pod: was.Pod}
		if !was.Ready {
			out[p] = Noted{Pod: was.Pod, Digest: was.Digest}
		}
	}
	return out
}

// Noted is one of them.
type Noted struct {
	// Pod is the name at the API server, with the namespace.
	Pod string `json:"pod"`
	// Digest is that of the manifest.
	Digest string `json:"digest"`
	// Hash is the kubelet's of the manifest that runs. Empty: the API server did not know the pod.
	Hash string `json:"hash,omitempty"`
	// Ready reports whether the pod was.
	Ready bool `json:"ready,omitempty"`
}

// Observe notes what is there. It asks until the API server answers or ctx ends; without an answer it could not be told later
// whether a pod is the old one.
func Observe(ctx context.Context, h host.Host) (Note, error) {
	if err := checkDir(h.Root); err != nil {
		return nil, err
	}
	var note Note
	err := Until(ctx, h.Clock, func() error {
		manifests, err := List(h.Root)
		if err != nil {
			return err
		}
		node, mirrors, err := mirrors(ctx, h.Root)
		if err != nil {
			return err
		}
		note = Note{}
		for p, m := range manifests {
			name := m.on(node)
			noted := Noted{Pod: name, Digest: m.Digest}
			if is := mirrors[name]; is != nil {
				noted.Hash, noted.Ready = is.Metadata.Annotations[hashAnnotation], is.ready()
			}
			note[p] = noted
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("the node's static pods can't be looked at: %w", err)
	}
	return note, nil
}

// Await waits until the node runs what its manifests say: each that is not as it was noted has a new pod that is Ready, each that
// is as it was has the pod that it had, and what has no manifest any more is gone. It gives up when ctx ends, and says what is
// missing. The API server may be one of the pods: that it does not answer is only waited for.
func Await(ctx context.Context, h host.Host, note Note) error {
	if err := checkDir(h.Root); err != nil {
		return err
	}
	good := 0
	return Until(ctx, h.Clock, func() error {
		missing, err := await(ctx, h.Root, note)
		if err == nil && len(missing) > 0 {
			err = errors.New(strings.Join(missing, "; "))
		}
		if err != nil {
			good = 0
			return err
		}
		if good++; good < 2 {
			return errors.New("the static pods were seen to run only once")
		}
		return nil
	})
}

func await(ctx context.Context, r host.Root, note Note) ([]string, error) {
	manifests, err := List(r)
	if err != nil {
		return nil, err
	}
	node, mirrors, err := mirrors(ctx, r)
	if err != nil {
		return nil, err
	}
	var missing []string
	wanted := map[string]bool{}
	for _, p := range slices.Sorted(maps.Keys(manifests)) {
		name := manifests[p].on(node)
		wanted[name] = true
		if lack := lacks(mirrors[name], name, manifests[p].Digest, note[p]); lack != "" {
			missing = append(missing, lack)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(note)) {
		if old := note[p].Pod; !wanted[old] && mirrors[old] != nil {
			missing = append(missing, fmt.Sprintf("static pod %s still runs, although its manifest is gone", old))
		}
	}
	return missing, nil
}

// lacks returns what the pod of a manifest is missing, or "".
func lacks(is *Pod, name, digest string, was Noted) string {
	same := digest == was.Digest && name == was.Pod
	switch {
	case same && was.Hash == "":
		return "" // the kubelet did not run it before
	case is == nil || is.Metadata.DeletionTimestamp != nil:
		return fmt.Sprintf("static pod %s is not there", name)
	case same:
		return is.lacksBack(name, was)
	}
	if name == was.Pod && is.Metadata.Annotations[hashAnnotation] == was.Hash {
		return fmt.Sprintf("static pod %s is still that of the old manifest", name)
	}
	if !is.ready() {
		return fmt.Sprintf("static pod %s is not ready", name)
	}
	return ""
}

// lacksBack returns what the pod of a manifest that is as it was is missing.
func (p *Pod) lacksBack(name string, was Noted) string {
	if p.Metadata.Annotations[hashAnnotation] != was.Hash {
		return fmt.Sprintf("static pod %s is not yet that of the manifest which was put back", name)
	}
	if was.Ready && !p.ready() {
		return fmt.Sprintf("static pod %s is not ready", name)
	}
	return ""
}

// on returns the name of the pod at the API server: the kubelet appends that of the node.
func (m Manifest) on(node string) string {
	return m.Pod.Metadata.Namespace + "/" + m.Pod.Metadata.Name + "-" + strings.ToLower(node)
}

// ready reports whether a pod is up, or has done what it was to do.
func (p *Pod) ready() bool {
	if p == nil {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" {
			return true
		}
	}
	return p.Status.Phase == "Succeeded"
}

// mirrors returns the node's name, and the pods that its kubelet runs from files, by namespace and name.
func mirrors(ctx context.Context, r host.Root) (string, map[string]*Pod, error) {
	c, err := Connect(r, KubeletConfig) // each time: the kubelet renews its certificate
	if err != nil {
		return "", nil, err
	}
	node, err := c.NodeName()
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", KubeletConfig, err)
	}
	var list struct {
		Items []*Pod `json:"items"`
	}
	// A kubelet may list the pods of its own node, and those only.
	query := url.Values{"fieldSelector": {"spec.nodeName=" + node}}
	if err := c.Get(ctx, "/api/v1/pods", query, &list); err != nil {
		return "", nil, err
	}
	pods := map[string]*Pod{}
	for _, p := range list.Items {
		if p.Metadata.Annotations[sourceAnnotation] == "file" {
			pods[p.Metadata.Namespace+"/"+p.Metadata.Name] = p
		}
	}
	return node, pods, nil
}

// Until tries until it works. When ctx ends, it returns the last error that is not due to that.
func Until(ctx context.Context, clock host.Clock, try func() error) error {
	var last error
	for {
		err := try()
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if clock.Wait(ctx, look) != nil {
			return last
		}
	}
}

// checkDir returns an error if the kubelet looks for manifests elsewhere.
func checkDir(r host.Root) error {
	data, state, err := r.ReadFile(kubeletConfig)
	if err != nil || !state.Exists {
		return err
	}
	var config struct {
		StaticPodPath string `json:"staticPodPath"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return fmt.Errorf("%s can't be read: it is not the configuration of a kubelet", kubeletConfig)
	}
	if p := strings.TrimSuffix(config.StaticPodPath, "/"); p != Dir {
		return fmt.Errorf("the kubelet of the node does not look for static pods in %s: staticPodPath in %s says otherwise", Dir, kubeletConfig)
	}
	return nil
}
