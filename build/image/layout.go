package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/cobra"
)

// writeLayout writes an index into a directory by https://specs.opencontainers.org/image-spec/image-layout/, under its tag. A layout that is there is
// replaced; what is anything else is left alone.
func writeLayout(dir string, tag name.Tag, index v1.ImageIndex) error {
	found, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "oci-layout")); len(found) > 0 && err != nil {
		return errors.New("there is a directory that is no OCI layout")
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag.TagStr()}))
}

// readLayout returns the index that writeLayout has written.
func readLayout(dir string) (v1.ImageIndex, error) {
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("%w; run `make image`", err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("%s has %d images instead of one; run `make image`", dir, len(manifest.Manifests))
	}
	return all.ImageIndex(manifest.Manifests[0].Digest)
}

func pushCommand() *cobra.Command {
	var from, image string
	cmd := &cobra.Command{
		Use:   "push",
		Short: "Push the image of all architectures to its registry",
		Long:  "Push the image of all architectures to its registry, with what docker login has stored, and print its name with its digest.",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return push(cmd, from, image) },
	}
	cmd.Flags().StringVar(&from, "from", "bin/image", "Directory with the image, an OCI layout.")
	cmd.Flags().StringVar(&image, "image", "", "The image's name, with a tag.")
	return cmd
}

func push(cmd *cobra.Command, from, image string) error {
	tag, err := tagOf(image)
	if err != nil {
		return err
	}
	index, err := readLayout(from)
	if err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(tag, index, remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithContext(cmd.Context())); err != nil {
		return fmt.Errorf("push %s: %w", tag, err)
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), tag.Digest(digest.String()))
	return err
}
