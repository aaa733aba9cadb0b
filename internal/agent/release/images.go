package release

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/staticpod"
)

const (
	apiServer = "kube-apiserver"
	// apiServerManifest is where the registry of the control plane's images is read.
	apiServerManifest = staticpod.Dir + "/" + apiServer + ".yaml"
)

// missingImages lists, in words for people, which images of the source are not on the node. What the kubelet may have removed since is not
// seen.
func (j *job) missingImages(r *record) []string {
	var all []string
	for _, text := range j.Images.Archives {
		u, err := j.address(text, "")
		if err != nil {
			continue // check has seen to it
		}
		if want, err := j.sum(fileName(u)); err != nil || !slices.Contains(r.Imported, want) {
			all = append(all, fileName(u))
		}
	}
	if j.Images.Pull && !r.Pulled {
		all = append(all, "images of the control plane")
	}
	return all
}

// images brings those of the source.
func (j *job) images(ctx context.Context, r *record, controlPlane bool) error {
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
	if _, err := j.host.RunTelling(ctx, host.Command{Name: "ctr", Args: append(args, to)}); err != nil {
		return fmt.Errorf("%s could not be imported: %w", name, err)
	}
	r.Imported = append(r.Imported, want)
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
	sum, _, err := digest(at)
	if err != nil {
		return err
	}
	if sum != f.SHA256 {
		return fmt.Errorf("%s is no longer what was staged: stage the release again", at)
	}
	_, err = j.run(ctx, at, "config", "images", "pull", "--kubernetes-version", j.Version, "--image-repository", repository)
	return err
}
