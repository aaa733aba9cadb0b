package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// completionTimeout is how long a shell waits for names. Without them it goes on as if there were none.
const completionTimeout = 3 * time.Second

// completes has a shell complete the names of Machines, where a command takes them, and those of namespaces and Clusters behind their flags.
func (f *managementFlags) completes(cmd *cobra.Command) {
	if strings.Contains(cmd.Use, "MACHINE") {
		machines := f.names(f.machineNames)
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 && !strings.Contains(cmd.Use, "...") {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			names, directive := machines(cmd, args, begun)
			return slices.DeleteFunc(names, func(n string) bool { return slices.Contains(args, n) }), directive
		}
	}
	// An error would be that the flag is not there, or is completed already.
	_ = cmd.RegisterFlagCompletionFunc("namespace", f.names(func(ctx context.Context, c client.Client) ([]string, error) {
		return namesOf(ctx, c, corev1.SchemeGroupVersion.WithKind("NamespaceList"), "")
	}))
	_ = cmd.RegisterFlagCompletionFunc("cluster", f.names(func(ctx context.Context, c client.Client) ([]string, error) {
		return namesOf(ctx, c, clusterv1.GroupVersion.WithKind("ClusterList"), f.namespace)
	}))
}

// machineNames returns the names of the Machines that a command may be about.
func (f *managementFlags) machineNames(ctx context.Context, c client.Client) ([]string, error) {
	of := client.MatchingLabels{}
	if f.cluster != "" {
		of[clusterv1.ClusterNameLabel] = f.cluster
	}
	return namesOf(ctx, c, clusterv1.GroupVersion.WithKind("MachineList"), f.namespace, of)
}

// namesOf returns the names of objects, of which nothing but the metadata is read.
func namesOf(ctx context.Context, c client.Client, kind schema.GroupVersionKind, namespace string, opts ...client.ListOption) ([]string, error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(kind)
	err := c.List(ctx, &list, append(opts, client.InNamespace(namespace))...)
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, err
}

// names returns a function that completes by names which a management cluster has.
func (f *managementFlags) names(list func(context.Context, client.Client) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		f.patience = completionTimeout // of finding out which kinds there are, too
		c, err := f.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		names, err := list(ctx, c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, begun) })
		slices.Sort(names)
		return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
	}
}
