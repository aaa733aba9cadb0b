// Image makes refit's container image out of what `make build` has put into bin/: the server, and the agents that it brings to
// nodes. The same programs make the same image, with the same digest, on every machine. Container engines put the time of the
// build into an image, each in a place of its own, and not all can be told to leave it out; so it is made without one.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/spf13/cobra"
)

type options struct {
	bin, image, version, out, spdx string
	created                        int64
}

func main() {
	var o options
	cmd := &cobra.Command{
		Use:           "image",
		Short:         "Make refit's container image",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	cmd.Flags().StringVar(&o.bin, "bin", "bin", "Directory with refit and agents/.")
	cmd.Flags().StringVar(&o.image, "image", "", "The image's name, with a tag.")
	cmd.Flags().StringVar(&o.version, "version", "", "The version that the image's labels name.")
	cmd.Flags().StringVar(&o.out, "out", "", "File to write, for docker load. Unset: none.")
	cmd.Flags().StringVar(&o.spdx, "spdx", "", "File for the list of all programs in the image and their modules, in SPDX 2.3. Unset: none.")
	cmd.Flags().Int64Var(&o.created, "created", 0, "When the image was created, in seconds since 1970 (SOURCE_DATE_EPOCH).")
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func (o options) run(cmd *cobra.Command) error {
	tag, err := name.NewTag(o.image, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("--image: %w", err)
	}
	if tag.TagStr() == "latest" {
		return errors.New("--image: name a version instead of latest")
	}
	img, err := build(o.bin, o.version, time.Unix(o.created, 0).UTC())
	if err != nil {
		return err
	}
	digest, err := img.Digest()
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
	if o.out != "" {
		if err := os.MkdirAll(filepath.Dir(o.out), 0o750); err != nil {
			return err
		}
		if err := tarball.WriteToFile(o.out, tag, img); err != nil {
			return fmt.Errorf("write %s: %w", o.out, err)
		}
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s@%s\n", tag, digest)
	return err
}
