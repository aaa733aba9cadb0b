// demo shows refit's main job on one machine: a management cluster on loopback, a live in-place update of five nodes, and
// the proof of it. It ends all that it starts.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"

	"github.com/capi-refit/refit/test/nodes"
	"github.com/capi-refit/refit/test/system"
)

// The change of the demo: a file that the machines were made with, which needs no action, becomes another; and one is added
// for which sshd has to read its configuration again.
var (
	appFile  = bootstrapv1.File{Path: "/etc/demo.conf", Content: "updated in place\n", Owner: "root:root", Permissions: "0640"}
	sshdFile = bootstrapv1.File{Path: "/etc/ssh/sshd_config.d/50-refit-demo.conf", Content: "MaxSessions 20\n", Owner: "root:root", Permissions: "0644"}
)

const reloadedUnit = "ssh.service"

type options struct {
	keep  bool
	nodes string
}

func main() {
	ctrl.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	cmd := &cobra.Command{
		Use:           "demo",
		Short:         "Show a live in-place update of five nodes, and its proof",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	cmd.Flags().BoolVar(&o.keep, "keep", false, "Leave everything running at the end, until interrupted.")
	cmd.Flags().StringVar(&o.nodes, "nodes", "", "containers, stand-ins, or real for kubeadm machines; by default containers when Docker answers.")
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1) //nolint:gocritic // there is nothing left for the deferred stop to do
	}
}

func (o options) run(ctx context.Context, out io.Writer) (err error) {
	kinds := map[string]nodes.Kind{
		"": nodes.Auto, "containers": nodes.Containers, "stand-ins": nodes.StandIns, "real": nodes.Machines,
	}
	kind, ok := kinds[o.nodes]
	if !ok {
		return fmt.Errorf("--nodes is %q and can be containers, stand-ins or real", o.nodes)
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, "bin", "refit")); err != nil {
		return fmt.Errorf("%w; run it with `make demo`", err)
	}
	heading(out, "Starting a management cluster, refit, and a cluster of 3 + 2 machines")
	s, err := system.Start(ctx, system.Options{
		Source: root, BinDir: filepath.Join(root, "bin"), Nodes: kind,
		AllowPaths: []string{appFile.Path}, Progress: indent{out},
	})
	if err != nil {
		return err
	}
	defer func() {
		heading(out, "Stopping all that was started")
		err = errors.Join(err, s.Stop())
	}()
	d := &demo{System: s, out: out}
	if err := d.show(ctx); err != nil {
		return err
	}
	if o.keep {
		d.lookAround()
		<-ctx.Done()
	}
	return nil
}

func heading(w io.Writer, text string) { say(w, "\n== %s", text) }

func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }

// indent sets the progress of the parts off from the demo's own lines.
type indent struct{ io.Writer }

func (i indent) Write(p []byte) (int, error) {
	if _, err := i.Writer.Write(append([]byte("   "), p...)); err != nil {
		return 0, err
	}
	return len(p), nil
}
