package release

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/staticpod"
)

const (
	apiServer = "kube-apiserver"
	// apiServerManifest is where the registry of the control plane's images is read.
	apiServerManifest = staticpod.Dir + "/" + apiServer + ".yaml"
	// listPatience is how long containerd may take to list its images.
	listPatience = 10 * time.Second
)

// missingImages lists, in words for people, which images of the source are not on the node, or not any more.
func (j *job) missingImages(r *record) []string {
	var all []string
	lost := j.lost(context.Background(), r)
	for _, text := range j.Images.Archives {
		u, err := j.address(text, "")
		if err != nil {
			continue // check has seen to it
		}
		if want, err := j.sum(fileName(u)); err != nil || !slices.Contains(r.Imported, want) || slices.Contains(lost, want) {
			all = append(all, fileName(u))
		}
	}
	if j.Images.Pull && !r.Pulled {
		all = append(all, "images of the control plane")
	}
	return all
}

// lost returns the SHA-256 of the archives that were imported and of which containerd no longer has each image: the kubelet collects what no
// pod uses, when the disk is getting full or after its imageMaximumGCAge, and between staging and the update there can be days. What can't be
// asked counts as there.
func (j *job) lost(ctx context.Context, r *record) []string {
	if len(r.Images) == 0 {
		return nil
	}
	has, err := j.imageNames(ctx)
	if err != nil {
		return nil
	}
	var all []string
	for archive, names := range r.Images {
		if slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(has, name) }) {
			all = append(all, archive)
		}
	}
	return all
}

// imageNames returns those of all images that the kubelet sees in containerd.
func (j *job) imageNames(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	out, err := j.host.Run(ctx, host.Command{Name: "ctr", Args: []string{"-n", "k8s.io", "images", "ls", "-q"}})
	return strings.Fields(string(out)), err
}

// named returns the names of the images that an import has told of, as far as containerd lists them by the same names.
func (j *job) named(ctx context.Context, told []byte) []string {
	words := strings.Fields(string(told))
	if len(words) == 0 {
		return nil
	}
	has, err := j.imageNames(ctx)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(has, func(name string) bool { return !slices.Contains(words, name) })
}

// images brings those of the source.
func (j *job) images(ctx context.Context, r *record, controlPlane bool) error {
	for _, archive := range j.lost(ctx, r) {
		r.forget(archive)
	}
	for _, text := range j.Images.Archives {
		if err := j.importImages(ctx, r, text); err != nil {
			return err
		}
	}
	if !j.Images.Pull || r.Pulled {
		return nil
	}
	if controlPlane {
		if err := j.pull(ctx, r); err != nil {
			return err
		}
	}
	r.Pulled = true
	return j.save(r, draft)
}

// importImages fetches an archive of images and imports it. Its file goes afterwards, since it is as large as all of the images.
func (j *job) importImages(ctx context.Context, r *record, text string) error {
	from, err := j.address(text, "")
	if err != nil {
		return err
	}
	name := fileName(from)
	want, err := j.sum(name)
	if err != nil {
		return err
	}
	to := filepath.Join(j.place, fmt.Sprintf("images-%.12s", want))
	if slices.Contains(r.Imported, want) {
		return j.host.Disk.Remove(to)
	}
	if j.host.Program("ctr") == "" {
		return errors.New("the node has no ctr, by which containerd imports images; with another container runtime use images.pull, and a registry")
	}
	if _, err := j.fetch.get(ctx, thing{what: name, from: from, sha256: want, to: to, mode: 0o600, unpacked: 2}); err != nil {
		return err
	}
	j.tell("importing " + name)
	args := []string{"-n", "k8s.io", "images", "import"}
	// containerd 2 imports by its transfer service, which unpacks by rules of its own, unless it is told to do it as before.
	if help, err := j.host.Run(ctx, host.Command{Name: "ctr", Args: append(slices.Clone(args), "--help")}); err == nil &&
		strings.Contains(string(help), "--local") {
		args = append(args, "--local")
	}
	told, err := j.host.RunTelling(ctx, host.Command{Name: "ctr", Args: append(args, to)})
	if err != nil {
		return fmt.Errorf("%s could not be imported: %w", name, err)
	}
	r.imported(want, j.named(ctx, told))
	if err := j.save(r, draft); err != nil {
		return err
	}
	return j.host.Disk.Remove(to)
}

// pull has the kubeadm that was staged pull the images of its version. kubeadm would read the registry of kubeadm-config only with a file
// of configuration, so it is that of the API server that runs.
func (j *job) pull(ctx context.Context, r *record) error {
	f := r.file(kubeadm)
	if f == nil {
		return errors.New("images can't be pulled before kubeadm is installed, because it can't be taken out of what was staged; use images.archives")
	}
	m, err := staticpod.Read(j.host.Root, apiServerManifest)
	if err != nil {
		return err
	}
	if m == nil {
		return fmt.Errorf("%s is missing, so the registry of the control plane's images is not known", apiServerManifest)
	}
	repository := ""
	for _, c := range m.Pod.Spec.Containers {
		if at := strings.LastIndex(c.Image, "/"+apiServer); at > 0 && c.Name == apiServer {
			repository = c.Image[:at]
		}
	}
	if repository == "" {
		return fmt.Errorf("the image in %s is not one of %s in a registry; use images.archives", apiServerManifest, apiServer)
	}
	j.tell("pulling the images of Kubernetes " + j.Version)
	at := filepath.Join(j.place, kubeadm)
	sum, _, err := digest(j.host.Disk, at)
	if err != nil {
		return err
	}
	if sum != f.SHA256 {
		return fmt.Errorf("%s is no longer what was staged: stage the release again", at)
	}
	if _, err := j.run(ctx, at, "config", "images", "pull", "--kubernetes-version", j.Version, "--image-repository", repository); err != nil {
		return fmt.Errorf("the images of the control plane could not be pulled from %s: %w", repository, err)
	}
	return nil
}
