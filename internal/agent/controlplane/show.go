package controlplane

import (
	"errors"
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/node"
)

// The static pods of a control plane, as kubeadm calls them.
const (
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
	etcdMember        = "etcd"
)

var pods = []string{apiServer, controllerManager, scheduler, etcdMember}

// manifestPath is where kubeadm writes the manifest of a component.
func manifestPath(name string) string { return path.Join(staticpod.Dir, name+".yaml") }

// component returns what the specs say about one, or nil if it is not theirs.
func component(c *node.ControlPlane, name string) *node.Component {
	if c == nil {
		return nil
	}
	switch name {
	case apiServer:
		return &c.APIServer
	case controllerManager:
		return &c.ControllerManager
	case scheduler:
		return &c.Scheduler
	default:
		return c.Etcd
	}
}

// shown is what the node shows of its control plane.
type shown struct {
	manifests map[string]*staticpod.Manifest
	// certificates are those in which the specs put names: the API server's is the first, etcd's are there if the node has a member.
	certificates []certificate
}

// look reads what is there. Without the API server's manifest the node is not a control plane of kubeadm's, and manifests is nil.
func (k *Kind) look() (shown, error) {
	s := shown{}
	for _, name := range pods {
		m, err := staticpod.Read(k.host.Root, manifestPath(name))
		if err != nil {
			return shown{}, err
		}
		if name == apiServer && m == nil {
			return s, nil
		}
		if m != nil {
			if s.manifests == nil {
				s.manifests = map[string]*staticpod.Manifest{}
			}
			s.manifests[name] = m
		}
	}
	for _, issue := range issues {
		if s.manifests[issue.component] == nil {
			continue
		}
		c, err := k.certificate(s, issue)
		if err != nil {
			return shown{}, err
		}
		s.certificates = append(s.certificates, c)
	}
	return s, nil
}

// argument returns the value of one of a component's arguments, or the value that stands in for it.
func (s shown) argument(name, arg, otherwise string) string {
	m := s.manifests[name]
	if m == nil {
		return otherwise
	}
	return last(arguments(container(m, name))[arg], otherwise)
}

func last(values []string, otherwise string) string {
	if len(values) == 0 {
		return otherwise
	}
	return values[len(values)-1]
}

// container returns the one that runs the component; patches can have added others.
func container(m *staticpod.Manifest, name string) staticpod.Container {
	for _, c := range m.Pod.Spec.Containers {
		if c.Name == name {
			return c
		}
	}
	return m.Pod.Spec.Containers[0]
}

// arguments returns those of a container by name, in order.
func arguments(c staticpod.Container) map[string][]string {
	values := map[string][]string{}
	for _, word := range slices.Concat(c.Command, c.Args) {
		if long, ok := strings.CutPrefix(word, "--"); ok {
			name, value, _ := strings.Cut(long, "=")
			values[name] = append(values[name], value)
		}
	}
	return values
}

// byName returns the values of arguments by name.
func byName(args []node.Arg) map[string][]string {
	values := map[string][]string{}
	for _, a := range args {
		values[a.Name] = append(values[a.Name], a.Value)
	}
	return values
}

// differs says in which respects a component is not as the specs want it. What they wanted before and no longer do must be gone: was
// is nil where that is not asked. It contains no values.
func differs(m *staticpod.Manifest, name string, want, was *node.ControlPlane) []string {
	spec, before := component(want, name), component(was, name)
	if spec == nil {
		return nil
	}
	if m == nil {
		return []string{name + " missing"}
	}
	if before == nil {
		before = &node.Component{}
	}
	c := container(m, name)
	what := argsDiffer(name, c, spec, before)
	what = append(what, envsDiffer(name, c, spec, before)...)
	what = append(what, volumesDiffer(name, m, c, spec, before)...)
	if imageDiffers(name, c.Image, want, was) {
		what = append(what, name+" image")
	}
	return what
}

func argsDiffer(name string, c staticpod.Container, spec, before *node.Component) (what []string) {
	is, wanted, old := arguments(c), byName(spec.ExtraArgs), byName(before.ExtraArgs)
	for _, a := range slices.Concat(spec.ExtraArgs, before.ExtraArgs) {
		values, ok := wanted[a.Name]
		differs := ok && !slices.Equal(is[a.Name], values) ||
			!ok && len(is[a.Name]) > 0 && slices.Equal(is[a.Name], old[a.Name])
		if text := name + " --" + a.Name; differs && !slices.Contains(what, text) {
			what = append(what, text)
		}
	}
	return what
}

func envsDiffer(name string, c staticpod.Container, spec, before *node.Component) (what []string) {
	is, wanted := map[string]string{}, map[string]string{}
	for _, e := range c.Env {
		is[e.Name] = e.Value
	}
	for _, e := range spec.ExtraEnvs { // of two, kubeadm takes the later
		wanted[e.Name] = e.Value
	}
	for _, e := range slices.Concat(spec.ExtraEnvs, before.ExtraEnvs) {
		value, ok := wanted[e.Name]
		now, there := is[e.Name]
		differs := ok && (!there || now != value) || !ok && there && now == e.Value
		if text := name + " env " + e.Name; differs && !slices.Contains(what, text) {
			what = append(what, text)
		}
	}
	return what
}

func volumesDiffer(name string, m *staticpod.Manifest, c staticpod.Container, spec, before *node.Component) (what []string) {
	for _, v := range spec.ExtraVolumes {
		if !mounted(m, c, v) {
			what = append(what, name+" volume "+v.Name)
		}
	}
	for _, v := range before.ExtraVolumes {
		listed := slices.ContainsFunc(spec.ExtraVolumes, func(other node.ExtraVolume) bool { return other.Name == v.Name })
		if !listed && mounted(m, c, v) {
			what = append(what, name+" volume "+v.Name)
		}
	}
	return what
}

// mounted reports whether a manifest has a volume as kubeadm writes it.
func mounted(m *staticpod.Manifest, c staticpod.Container, want node.ExtraVolume) bool {
	for _, v := range m.Pod.Spec.Volumes {
		if v.Name != want.Name || v.HostPath == nil || v.HostPath.Path != want.HostPath || v.HostPath.Type != want.PathType {
			continue
		}
		for _, at := range c.VolumeMounts {
			if at.Name == want.Name && at.MountPath == want.MountPath && at.ReadOnly == want.ReadOnly {
				return true
			}
		}
	}
	return false
}

// imageDiffers compares repository and tag as far as the specs name them.
func imageDiffers(name, image string, want, was *node.ControlPlane) bool {
	repository, tag := imageOf(name, want)
	oldRepository, oldTag := imageOf(name, was)
	isRepository, isTag := splitImage(image)
	isRepository = strings.TrimSuffix(isRepository, "/"+name)
	differs := func(is, want, old string) bool {
		return want != "" && is != want || want == "" && old != "" && is == old
	}
	return differs(isRepository, repository, oldRepository) || differs(isTag, tag, oldTag)
}

func imageOf(name string, c *node.ControlPlane) (repository, tag string) {
	if c == nil {
		return "", ""
	}
	repository = c.ImageRepository
	if spec := component(c, name); name == etcdMember && spec != nil {
		if spec.ImageRepository != "" {
			repository = spec.ImageRepository
		}
		tag = spec.ImageTag
	}
	return repository, tag
}

// splitImage splits an image into its name and its tag. A digest is not a tag.
func splitImage(image string) (name, tag string) {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[:i], image[i+1:]
	}
	return image, ""
}

// patched returns the components of which kubeadm's patches change the manifest: with them it can say otherwise than the specs.
func (k *Kind) patched(directory string) (map[string]bool, error) {
	if directory == "" {
		return nil, nil
	}
	entries, err := k.host.ReadDir(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, e := range entries {
		for _, name := range pods {
			if strings.HasPrefix(e.Name(), name) { // target[suffix][+type].extension
				all[name] = true
			}
		}
	}
	return all, nil
}

// differences are those of the whole control plane.
type differences struct {
	// manifests and etcd say which of them are not as they are wanted; etcd's own manifest is among the first.
	manifests []string
	etcd      bool
	// certificates are those that lack a name, or have one too many.
	certificates []certificate
}

func (d differences) all() []string {
	all := slices.Clone(d.manifests)
	for _, c := range d.certificates {
		all = append(all, c.what)
	}
	return all
}

// compare returns what the node shows otherwise than it is wanted.
func (k *Kind) compare(s shown, want, was *node.ControlPlane) (differences, error) {
	patched, err := k.patched(want.PatchesDirectory)
	if err != nil {
		return differences{}, err
	}
	var d differences
	for _, name := range pods {
		if patched[name] && s.manifests[name] != nil {
			continue
		}
		what := differs(s.manifests[name], name, want, was)
		d.manifests = append(d.manifests, what...)
		d.etcd = d.etcd || name == etcdMember && len(what) > 0
	}
	for _, c := range s.certificates {
		if c.lacksSANs(want, was) {
			d.certificates = append(d.certificates, c)
		}
	}
	return d, nil
}

// plain returns a copy in which what means the same is the same.
func plain(c *node.ControlPlane) node.ControlPlane {
	if c == nil {
		return node.ControlPlane{}
	}
	p := *c
	if p.Etcd != nil && reflect.DeepEqual(*p.Etcd, node.Component{}) {
		p.Etcd = nil
	}
	if len(p.CertSANs) == 0 {
		p.CertSANs = nil
	}
	if len(p.FeatureGates) == 0 {
		p.FeatureGates = nil
	}
	return p
}

func same(a, b *node.ControlPlane) bool { return reflect.DeepEqual(plain(a), plain(b)) }

// hidden reports whether the specs have changed what a manifest does not show: kubeadm's feature gates, patches, and what patches
// may have changed.
func hidden(patched map[string]bool, was, want *node.ControlPlane) bool {
	a, b := withoutSANs(was), withoutSANs(want)
	if !reflect.DeepEqual(a.FeatureGates, b.FeatureGates) || a.PatchesDirectory != b.PatchesDirectory {
		return true
	}
	return slices.ContainsFunc(pods, func(name string) bool {
		return patched[name] && !reflect.DeepEqual(component(a, name), component(b, name))
	})
}
