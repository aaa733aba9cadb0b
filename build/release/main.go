// Release packs what a release of refit has out of the programs that make release has built: archives of the command, the components that clusterctl
// installs with their metadata, the Helm chart, a manifest for krew, a list of modules, and the checksums of all of it. The same programs make the same
// bytes.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// options are what a release is made of.
type options struct {
	version, programs, config, chart, metadata, license, out string
	created                                                  int64
}

func main() {
	var o options
	cmd := &cobra.Command{
		Use:           "release",
		Short:         "Pack a release of refit",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(*cobra.Command, []string) error { return o.run() },
	}
	cmd.Flags().StringVar(&o.version, "version", "", "The version: v0.1.0, say.")
	cmd.Flags().StringVar(&o.programs, "programs", "bin/release", "Directory with refit-OS-ARCH of each platform.")
	cmd.Flags().StringVar(&o.config, "config", "config", "Directory with the manifests.")
	cmd.Flags().StringVar(&o.chart, "chart", "charts/refit", "Directory with the Helm chart.")
	cmd.Flags().StringVar(&o.metadata, "metadata", "metadata.yaml", "File that says for which contracts of Cluster API the releases are.")
	cmd.Flags().StringVar(&o.license, "license", "LICENSE", "File that each archive has, too.")
	cmd.Flags().StringVar(&o.out, "out", "out", "Directory for the release. What it has of another version is removed.")
	cmd.Flags().Int64Var(&o.created, "created", 0, "What all files are dated, in seconds since 1970 (SOURCE_DATE_EPOCH).")
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run makes the release beside its place first, so that half a release is never there.
func (o options) run() error {
	v, err := parse(o.version)
	if err != nil {
		return err
	}
	if err := replaceable(o.out); err != nil {
		return err
	}
	if _, err := metadata(o.metadata, v); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(filepath.Clean(o.out)), 0o750); err != nil {
		return err
	}
	partial, err := os.MkdirTemp(filepath.Dir(filepath.Clean(o.out)), "release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(partial) }()
	if err := o.pack(v, partial); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(o.out), os.Chmod(partial, 0o755), os.Rename(partial, o.out)) //nolint:gosec // a release is for everybody
}

// replaceable returns an error if a directory has what no release has.
func replaceable(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || (err == nil && len(entries) == 0) {
		return nil
	}
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == checksums }) {
		return fmt.Errorf("%s has no %s, so it is no release: it is not replaced", dir, checksums)
	}
	return nil
}

// pack writes all files of the release into a directory.
func (o options) pack(v version, dir string) error {
	at := time.Unix(o.created, 0).UTC()
	archives, err := o.archives(dir, at)
	if err != nil {
		return err
	}
	files := map[string]func() ([]byte, error){
		"runtime-extension-components.yaml": func() ([]byte, error) { return components(o.config, v) },
		"metadata.yaml":                     func() ([]byte, error) { return metadata(o.metadata, v) },
		"refit.krew.yaml":                   func() ([]byte, error) { return krew(v, archives) },
		"refit.spdx.json":                   func() ([]byte, error) { return o.sbom(v, at) },
		"refit-" + v.plain() + ".tgz":       func() ([]byte, error) { return chart(o.chart, v, at) },
	}
	for name, pack := range files {
		data, err := pack()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil { //nolint:gosec // a release is for everybody
			return err
		}
	}
	return sum(dir)
}
