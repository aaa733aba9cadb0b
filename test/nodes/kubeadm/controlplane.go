package kubeadm

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// writeControlPlane writes an archive with the images that kubeadm and containerd ask for, with nothing in them but the programs.
func (b *build) writeControlPlane(ctx context.Context, archive string) error {
	out, err := exec.CommandContext(ctx, b.programs["kubeadm"], "config", "images", "list", "--kubernetes-version", b.version).Output()
	if err != nil {
		return fmt.Errorf("asking kubeadm for its images: %w", err)
	}
	sandbox, err := sandboxImage()
	if err != nil {
		return err
	}
	names := strings.Fields(string(out))
	if !slices.Contains(names, sandbox) {
		names = append(names, sandbox)
	}
	var images []image
	for _, name := range names {
		i, err := b.controlPlaneImage(name)
		if err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
		images = append(images, i)
	}
	return writeWhole(archive, func(w io.Writer) error { return writeArchive(w, images) })
}

// sandboxImage returns the image of pods' sandboxes, which containerd's configuration names. It is the same for all versions, and kubeadm of
// some knows another one.
func sandboxImage() (string, error) {
	const config = "image/root/etc/containerd/config.toml"
	text, err := recipe.ReadFile(config)
	if err != nil {
		return "", err
	}
	found := sandboxLine.FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("%s names no image of sandboxes", config)
	}
	return string(found[1]), nil
}

var sandboxLine = regexp.MustCompile(`(?m)^ *sandbox = '([^']+)'$`)

// controlPlaneImage makes the image of that name, in b.work.
func (b *build) controlPlaneImage(name string) (image, error) {
	repository, _, ok := strings.Cut(path.Base(name), ":")
	if !ok {
		return image{}, errors.New("it has no tag")
	}
	program, ok := b.programs[repository]
	if !ok {
		return image{}, errors.New("no program for it was built")
	}
	i := image{name: name, env: []string{searchPath}}
	target := "usr/local/bin/" + repository
	switch repository {
	case "kube-proxy":
		// It runs iptables.
		layer := filepath.Join(b.work, "iptables.tar")
		if err := extract(b.base, "kind/kube-proxy.tar", layer); err != nil {
			return image{}, err
		}
		i.layers = append(i.layers, layer)
	case "coredns", "pause":
		// Their pods count on an entry point.
		target = repository
		i.entrypoint = []string{"/" + repository}
	}
	layer := filepath.Join(b.work, repository+".tar")
	i.layers = append(i.layers, layer)
	return i, writeLayer(layer, []file{{name: target, mode: 0o755, source: program}})
}

// extract copies one file out of a tar file.
func extract(archive, name, target string) error {
	source, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer source.Close()
	entries := tar.NewReader(source)
	for {
		header, err := entries.Next()
		if err != nil {
			return fmt.Errorf("looking for %s in %s: %w", name, archive, err)
		}
		if path.Clean(header.Name) == name {
			return writeWhole(target, func(w io.Writer) error {
				_, err := io.Copy(w, entries)
				return err
			})
		}
	}
}
