package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/capi-refit/refit/test/engine"
	"github.com/capi-refit/refit/test/lab"
)

func upCommand() *cobra.Command {
	var (
		options lab.Options
		cluster bool
	)
	command := &cobra.Command{
		Use:   "up",
		Short: "Start the lab and keep it running until interrupted",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			options.Progress = command.ErrOrStderr()
			if options.Dir == "" {
				cache, err := os.UserCacheDir()
				if err != nil {
					return err
				}
				options.Dir = filepath.Join(cache, "refit", "lab", "up")
			}
			return up(command, options, cluster)
		},
	}
	command.Flags().StringVar((*string)(&options.Backend), "backend", string(lab.InMemory), "what machines are: in-memory, or docker for real kubeadm nodes in containers")
	command.Flags().StringVar(&options.Dir, "dir", "", "keep kubeconfig and logs here (default: in the user's cache directory)")
	command.Flags().StringSliceVar(&options.CRDPaths, "crds", nil, "files or directories with further CRDs to install")
	command.Flags().BoolVar(&cluster, "cluster", false, "also create a cluster: 3 control-plane machines and 2 workers")
	return command
}

func up(command *cobra.Command, options lab.Options, cluster bool) (err error) {
	ctx := command.Context()
	running, err := lab.Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := running.Stop(); err == nil {
			err = stopErr
		}
	}()
	if cluster {
		if err := createCluster(command, running); err != nil {
			return err
		}
	}
	lookAround(command.OutOrStdout(), running, cluster)
	select {
	case <-ctx.Done():
		_, _ = fmt.Fprintln(command.ErrOrStderr(), "stopping")
		return nil
	case err := <-running.Failed():
		return err
	}
}

// createCluster creates a cluster and leaves its kubeconfig beside the management cluster's.
func createCluster(command *cobra.Command, running *lab.Lab) error {
	cluster, err := running.CreateCluster(command.Context(), lab.ClusterOptions{})
	if err != nil {
		return err
	}
	kubeconfig, err := cluster.WorkloadKubeconfig(command.Context())
	if err != nil {
		return err
	}
	return os.WriteFile(workloadKubeconfig(running), kubeconfig, 0o600)
}

func workloadKubeconfig(running *lab.Lab) string {
	return filepath.Join(filepath.Dir(running.Kubeconfig), "workload.kubeconfig")
}

// host is what the docker command needs to be told of an engine that is not the user's own.
func host(e engine.Engine) string {
	if e.Host == "" {
		return ""
	}
	return "--host " + e.Host + " "
}

func lookAround(out io.Writer, running *lab.Lab, cluster bool) {
	kubectl := running.Binaries[lab.Kubectl]
	_, _ = fmt.Fprintf(out, "\nThe lab is up. Interrupt it (ctrl-c) to end everything. In another terminal:\n\n")
	_, _ = fmt.Fprintf(out, "  export KUBECONFIG=%s\n  alias kubectl=%s\n", running.Kubeconfig, kubectl)
	if cluster {
		_, _ = fmt.Fprintf(out, "  kubectl get machines -A\n  kubectl --kubeconfig=%s get nodes\n", workloadKubeconfig(running))
	} else {
		_, _ = fmt.Fprintf(out, "  kubectl get crds\n")
	}
	if cluster && running.MachineImages() != nil {
		_, _ = fmt.Fprintf(out, "  docker %sexec -it MACHINE bash   # a shell on a machine, by the name that kubectl shows\n", host(running.Engine()))
	}
	_, _ = fmt.Fprintf(out, "  tail -f %s/*.log\n\n", running.LogDir)
}
