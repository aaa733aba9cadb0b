package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/admin"
	"github.com/capi-refit/refit/internal/lease"
	"github.com/capi-refit/refit/internal/protection"
)

// managementFlags say which management cluster a command is about, which Machines in it, and who asks.
type managementFlags struct {
	// config are the flags of kubectl by which it finds a cluster. They are there once addConnection has been called.
	config                    *genericclioptions.ConfigFlags
	namespace, cluster, admin string
	// patience is how long a request may take, unless --request-timeout says so. 0: as long as it takes.
	patience time.Duration
	// connect makes a client of the management cluster; tests have their own.
	connect func(*rest.Config) (client.WithWatch, error)
	// observe, if not nil, sees what passes to and from the API server.
	observe transport.WrapperFunc
}

// observed has what passes be seen.
func (f *managementFlags) observed(cfg *rest.Config) {
	if f.observe != nil {
		cfg.Wrap(f.observe)
	}
}

// addConnection adds the flags that say which management cluster, and as whom: those of kubectl.
func (f *managementFlags) addConnection(fs *pflag.FlagSet) {
	f.config = &genericclioptions.ConfigFlags{
		KubeConfig: new(""), Context: new(""), AuthInfoName: new(""), Impersonate: new(""), ImpersonateUID: new(""), ImpersonateGroup: new([]string), Timeout: new("0"),
	}
	f.config.AddFlags(fs)
	for name, usage := range map[string]string{
		"kubeconfig":      "Kubeconfig of the management cluster. Unset: the usual places.",
		"context":         "Context of the kubeconfig. Unset: the current one.",
		"user":            "User of the kubeconfig. Unset: that of the context.",
		"as":              "User to act as, who may be a ServiceAccount: system:serviceaccount:NAMESPACE:NAME. Unset: yourself.",
		"as-group":        "Group to act as a member of. Can be there more than once.",
		"as-uid":          "UID to act as.",
		"request-timeout": "How long a request may take: 10s, say. 0: as long as it takes.",
	} {
		fs.Lookup(name).Usage = usage
	}
}

// addScope adds the flags that say where.
func (f *managementFlags) addScope(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.addConnection(fs)
	fs.StringVarP(&f.namespace, "namespace", "n", "", "Namespace of the Machine. Unset: all are looked through.")
	fs.StringVar(&f.cluster, "cluster", "", "Name of the Machine's Cluster. Unset: any.")
	f.completes(cmd)
}

// addAdmin adds the flag that says who.
func (f *managementFlags) addAdmin(fs *pflag.FlagSet) {
	fs.StringVar(&f.admin, "as-admin", "", "Your name, as others see it. Unset: the user that the management cluster takes you for, or else $USER.")
}

func (f *managementFlags) scope() admin.Scope {
	return admin.Scope{Namespace: f.namespace, Cluster: f.cluster}
}

// scopeOrDefault returns where Machines are looked for by a command that is about the kubeconfig's namespace if nothing else is said.
func (f *managementFlags) scopeOrDefault(all bool) (admin.Scope, error) {
	scope := f.scope()
	switch {
	case all && scope.Namespace != "":
		return scope, errors.New("--all-namespaces and --namespace exclude each other")
	case all || scope.Namespace != "":
		return scope, nil
	}
	var err error
	if scope.Namespace, err = f.defaultNamespace(); err != nil {
		return scope, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return scope, nil
}

// client returns one that reads from the API server.
func (f *managementFlags) client() (client.WithWatch, error) {
	if f.connect != nil {
		return f.connect(nil)
	}
	cfg, err := f.config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("find the management cluster: %w; say where it is with --kubeconfig", err)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = f.patience
	}
	f.observed(cfg)
	c, err := newClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("reach the management cluster: %w", err)
	}
	return c, nil
}

// defaultNamespace is that of the kubeconfig's context.
func (f *managementFlags) defaultNamespace() (string, error) {
	name, _, err := f.config.ToRawKubeConfigLoader().Namespace()
	return name, err
}

func newClient(cfg *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), clusterv1.AddToScheme(scheme), controlplanev1.AddToScheme(scheme), runtimev1.AddToScheme(scheme),
		apiextensionsv1.AddToScheme(scheme), refitv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = "refit/" + version
	cfg.WarningHandler = rest.NewWarningWriter(os.Stderr, rest.WarningWriterOptions{Deduplicate: true})
	return client.NewWithWatch(cfg, client.Options{Scheme: scheme})
}

// request is a command of a person about one Machine.
type request struct {
	client  client.WithWatch
	machine *clusterv1.Machine
	who     string
}

// find finds the Machine, and says who asks for something to be done with it.
func (f *managementFlags) find(cmd *cobra.Command, name string) (*request, error) {
	c, err := f.client()
	if err != nil {
		return nil, err
	}
	m, err := admin.FindMachine(cmd.Context(), c, name, f.scope())
	if err != nil {
		return nil, err
	}
	who, err := admin.Who(cmd.Context(), c, f.admin, os.Getenv("USER"))
	return &request{client: c, machine: m, who: who}, err
}

// heldNodes are the nodes of a workload cluster, for people who hold them.
type heldNodes struct {
	*lease.Locker
	*protection.HeldNodes
}

// workloadNodes returns a function that returns the nodes of a workload cluster: by a kubeconfig if there is one, else by the Secrets in
// the management cluster.
func workloadNodes(management client.Reader, kubeconfig, namespace string) func(context.Context, types.NamespacedName) (admin.Nodes, error) {
	return func(ctx context.Context, cluster types.NamespacedName) (admin.Nodes, error) {
		var cfg *rest.Config
		var err error
		if kubeconfig != "" {
			cfg, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
		} else {
			cfg, err = admin.WorkloadConfig(ctx, management, cluster)
		}
		if errors.Is(err, admin.ErrNoKubeconfig) {
			err = fmt.Errorf("%w; say how cluster %s is reached with --workload-kubeconfig", err, cluster.Name)
		}
		if err != nil {
			return nil, err
		}
		c, err := newClient(cfg)
		if err != nil {
			return nil, err
		}
		// A person's hold takes nobody's lease because it has lapsed: nobody watches for long enough.
		locker := &lease.Locker{Client: c, Namespace: namespace, Clock: clock.RealClock{}, Instance: "refit-cli"}
		return heldNodes{locker, &protection.HeldNodes{Client: c}}, nil
	}
}
