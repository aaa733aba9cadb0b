// Image makes refit's container image out of programs that make has put into bin/: the server for each architecture, and the agents that it brings to
// nodes. The same programs make the same image, with the same digest, on every machine. Container engines put the time of the build into an image, each
// in a place of its own, and not all can be told to leave it out; so it is made without one. See docs/adr/0054-an-image-without-a-base.md.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/spf13/cobra"
)

// options are those of make image.
type options struct {
	bin, image, version, revision string
	created                       int64
	// layout, docker and spdx are what is written. Unset: nothing.
	layout, docker, dockerArch, spdx string
}

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:           "image",
		Short:         "Make refit's container image",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	cmd.Flags().StringVar(&o.bin, "bin", "bin", "Directory with refit-linux-ARCH for each architecture, and agents/.")
	cmd.Flags().StringVar(&o.image, "image", "", "The image's name, with a tag.")
	cmd.Flags().StringVar(&o.version, "version", "", "The version that the image's labels name.")
	cmd.Flags().StringVar(&o.revision, "revision", "", "The commit that the image's labels name. Unset: none.")
	cmd.Flags().Int64Var(&o.created, "created", 0, "When the image was created, in seconds since 1970 (SOURCE_DATE_EPOCH).")
	cmd.Flags().StringVar(&o.layout, "out", "", "Directory to write, an OCI layout with the image of all architectures. Unset: none.")
	cmd.Flags().StringVar(&o.docker, "docker", "", "File to write, for docker load, with the image of one architecture. Unset: none.")
	cmd.Flags().StringVar(&o.dockerArch, "docker-arch", runtime.GOARCH, "The architecture of the file for docker load.")
	cmd.Flags().StringVar(&o.spdx, "spdx", "", "File for the list of all programs in the image and their modules, in SPDX 2.3. Unset: none.")
	cmd.AddCommand(pushCommand())
	return cmd
}

// tagOf is what --image says.
func tagOf(image string) (name.Tag, error) {
	tag, err := name.NewTag(image, name.StrictValidation)
	if err != nil {
		return tag, fmt.Errorf("--image: %w", err)
	}
	if tag.TagStr() == "latest" {
		return tag, errors.New("--image: name a version instead of latest")
	}
	return tag, nil
}

func (o options) run(cmd *cobra.Command) error {
	tag, err := tagOf(o.image)
	if err != nil {
		return err
	}
	images, err := o.images()
	if err != nil {
		return err
	}
	index := o.index(images)
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	if o.spdx != "" {
		list, err := o.sbom()
		if err != nil {
			return fmt.Errorf("list what is in the image: %w", err)
		}
		if err := os.WriteFile(o.spdx, list, 0o644); err != nil { //nolint:gosec // it is for everybody
			return err
		}
	}
	if o.layout != "" {
		if err := writeLayout(o.layout, tag, index); err != nil {
			return fmt.Errorf("write %s: %w", o.layout, err)
		}
	}
	if o.docker != "" {
		if err := o.writeDocker(tag, images); err != nil {
			return fmt.Errorf("write %s: %w", o.docker, err)
		}
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s@%s\n", tag, digest)
	return err
}

// writeDocker writes what docker load reads, which takes one architecture.
func (o options) writeDocker(tag name.Tag, images map[string]v1.Image) error {
	img, ok := images[o.dockerArch]
	if !ok {
		return fmt.Errorf("there is no image for %s", o.dockerArch)
	}
	if err := os.MkdirAll(filepath.Dir(o.docker), 0o750); err != nil {
		return err
	}
	return tarball.WriteToFile(o.docker, tag, img)
}

// at is the time of all that is in the image.
func (o options) at() time.Time { return time.Unix(o.created, 0).UTC() }
