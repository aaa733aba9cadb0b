package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/test/install"
	"github.com/capi-refit/refit/test/lab"
	"github.com/capi-refit/refit/test/nodes"
	"github.com/capi-refit/refit/test/system"
)

// Whose a step is: what anybody needs who has Cluster API, or what refit takes.
const (
	others = "Cluster API"
	refits = "refit"
)

// version is that of the release that is installed.
const version = "v0.1.0"

// motd is the file of the tutorial.
var motd = bootstrapv1.File{Path: "/etc/motd", Content: "hello\n", Owner: "root:root", Permissions: "0644"}

type step struct {
	name, whose string
	do          func(context.Context) error
}

// user is who goes the way.
type user struct {
	root string
	out  io.Writer

	management *install.Management
	cluster    *lab.Cluster
	fleet      *nodes.Fleet
	repository string // of releases
	clusterctl string // its configuration file
	policy     string // the tutorial's
	machine    string // the one that is updated
	uid        types.UID
	undo       []func() error
}

func (u *user) stop() error {
	var errs []error
	for i := len(u.undo) - 1; i >= 0; i-- {
		errs = append(errs, u.undo[i]())
	}
	return errors.Join(errs...)
}

// prepare does what is no step: it builds what a user downloads, and reads the tutorial.
func (u *user) prepare(ctx context.Context) error {
	page, err := os.ReadFile(filepath.Join(u.root, "docs", "tutorial.md"))
	if err != nil {
		return err
	}
	found := regexp.MustCompile("(?s)```yaml\n(apiVersion: capi-refit.dev/v1alpha1\nkind: ChangeManagementPolicy\n.*?)```").FindSubmatch(page)
	if found == nil || !strings.Contains(string(page), "path: "+motd.Path+",") {
		return errors.New("docs/tutorial.md has no policy, or another file than " + motd.Path)
	}
	u.policy = strings.ReplaceAll(string(found[1]), "namespace: fleet", "namespace: lab")
	if _, err = lab.Build(ctx, u.out); err != nil {
		return err
	}
	if u.repository, err = os.MkdirTemp("", "refit-repository-"); err != nil {
		return err
	}
	u.undo = append(u.undo, func() error { return os.RemoveAll(u.repository) })
	_, err = install.Releases(ctx, u.root, u.repository, version)
	return err
}

func (u *user) steps() []step {
	return []step{
		{"a management cluster with Cluster API and cert-manager", others, u.startManagement},
		{"a Cluster of 3 + 2 machines, and their nodes", others, u.startCluster},
		{"clusterctl init --runtime-extension refit", refits, u.install},
		{"refit check", refits, u.lookBefore},
		{"kubectl apply: key, known hosts, NodeAccess", refits, u.grantAccess},
		{"kubectl apply: a policy", refits, u.applyPolicy},
		{"kubectl label namespace", refits, u.label},
		{"refit check --problems", refits, u.lookAfter},
		{"a file in the template of the workers", refits, u.change},
		{"refit pending, until the change waits", refits, u.pending},
		{"refit permit, until the machine has succeeded", refits, u.permit},
	}
}

func (u *user) startManagement(ctx context.Context) error {
	var err error
	u.management, err = install.Start(ctx, install.Options{Source: u.root, BinDir: filepath.Join(u.root, "bin"), Progress: u.out})
	if err != nil {
		return err
	}
	u.undo = append(u.undo, u.management.Stop)
	u.clusterctl, err = u.management.ForClusterctl(ctx, u.repository, version)
	return err
}

func (u *user) startCluster(ctx context.Context) error {
	var err error
	if u.cluster, err = u.management.Lab.CreateCluster(ctx, lab.ClusterOptions{}); err != nil {
		return err
	}
	machines, err := u.cluster.Machines(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, m := range machines {
		names = append(names, m.Name)
	}
	if u.fleet, err = nodes.Start(ctx, nodes.Options{Names: names, Kind: nodes.StandIns, Progress: u.out}); err != nil {
		return err
	}
	u.undo = append(u.undo, func() error { return u.fleet.Stop(context.WithoutCancel(ctx)) })
	for i := range machines {
		if err := system.Boot(ctx, u.management.Client, u.fleet, &machines[i]); err != nil {
			return err
		}
	}
	return nil
}

// install also waits until both of Cluster API's managers know refit, as docs/install.md says.
func (u *user) install(ctx context.Context) error {
	_, err := u.management.Run(ctx, "", nil, lab.Clusterctl, "init", "--runtime-extension", "refit:"+version, "--config", u.clusterctl, "--wait-providers")
	if err != nil {
		return err
	}
	if err := u.management.Publish(ctx, client.ObjectKey{Namespace: "refit-system", Name: "refit"}); err != nil {
		return err
	}
	return u.management.Lab.WaitForExtension(ctx, "refit")
}

// check runs refit check, and returns what it says and the code with which it exits: 1 for warnings, 2 for errors.
func (u *user) check(ctx context.Context, args ...string) (said string, code int, err error) {
	said, err = u.management.Refit(ctx, append([]string{"check", "-n", u.cluster.Namespace, "--cluster", u.cluster.Name}, args...)...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return said, exit.ExitCode(), nil
	}
	return said, 0, err
}

// lookBefore has check say that no machine can be reached yet.
func (u *user) lookBefore(ctx context.Context) error {
	if said, err := u.management.Refit(ctx, "version"); err != nil || !strings.Contains(said, ":"+version+" ") {
		return fmt.Errorf("it does not say that %s is installed: %w\n%s", version, err, said)
	}
	said, code, err := u.check(ctx)
	if err == nil && (code != 2 || !strings.Contains(said, "NodeAccess")) {
		err = fmt.Errorf("it does not say that the machines have no NodeAccess:\n%s", said)
	}
	return err
}

func (u *user) lookAfter(ctx context.Context) error {
	said, code, err := u.check(ctx, "--problems")
	_, _ = fmt.Fprint(u.out, said)
	if err == nil && code == 2 {
		err = errors.New("it finds errors")
	}
	return err
}

func (u *user) grantAccess(ctx context.Context) error {
	access := system.Access(u.fleet.Kind())
	access.SetGroupVersionKind(refitv1.GroupVersion.WithKind("NodeAccess"))
	access.Namespace, access.Name, access.Spec.ClusterName = u.cluster.Namespace, "all", u.cluster.Name
	key := &corev1.Secret{Data: map[string][]byte{"ssh-privatekey": u.fleet.PrivateKey()}}
	hosts := &corev1.Secret{Data: map[string][]byte{"known_hosts": u.fleet.KnownHosts()}}
	key.Name, hosts.Name = system.KeySecret, system.KnownHostsName
	var manifest strings.Builder
	for _, o := range []client.Object{key, hosts, access} {
		if s, ok := o.(*corev1.Secret); ok {
			s.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
			s.Namespace = u.cluster.Namespace
		}
		data, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		manifest.WriteString("---\n" + string(data))
	}
	return u.apply(ctx, "access.yaml", manifest.String())
}

func (u *user) applyPolicy(ctx context.Context) error { return u.apply(ctx, "policy.yaml", u.policy) }

// label has Cluster API ask refit about the machines, and waits as docs/install.md says.
func (u *user) label(ctx context.Context) error {
	if said, _, err := u.check(ctx, "--problems"); err != nil || !strings.Contains(said, "no ExtensionConfig is for the namespace") {
		return fmt.Errorf("it does not say that the namespace is not labelled: %w\n%s", err, said)
	}
	_, err := u.management.Run(ctx, "", nil, lab.Kubectl, "label", "namespace", u.cluster.Namespace, "capi-refit.dev/in-place-updates=enabled")
	if err == nil {
		err = u.management.Lab.WaitForExtension(ctx, "refit")
	}
	return err
}

func (u *user) apply(ctx context.Context, name, manifest string) error {
	file := filepath.Join(u.management.Dir, name)
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		return err
	}
	_, err := u.management.Run(ctx, "", nil, lab.Kubectl, "apply", "-f", file)
	return err
}

func (u *user) change(ctx context.Context) error {
	return u.cluster.ChangeWorkers(ctx, func(_ *clusterv1.MachineDeployment, config *bootstrapv1.KubeadmConfigSpec) {
		config.Files = append(config.Files, motd)
	})
}

// pending waits until the update of a worker waits, and looks at it as the tutorial does.
func (u *user) pending(ctx context.Context) error {
	err := u.await(ctx, func(mu *refitv1.MachineUpdate) bool {
		if mu.Status.Message == "" {
			return false
		}
		u.machine = mu.Name
		said, err := u.management.Refit(ctx, "pending", "-n", u.cluster.Namespace, "--cluster", u.cluster.Name, "-o", "wide")
		return err == nil && strings.Contains(said, u.cluster.Name)
	})
	if err != nil {
		return err
	}
	for what, look := range map[string]func() (string, error){
		"refit status": func() (string, error) {
			return u.management.Refit(ctx, "status", "-n", u.cluster.Namespace, "--cluster", u.cluster.Name)
		},
		"kubectl describe": func() (string, error) {
			return u.management.Run(ctx, "", nil, lab.Kubectl, "describe", "machineupdate", "-n", u.cluster.Namespace, u.machine)
		},
	} {
		if said, err := look(); err != nil || !strings.Contains(said, u.machine) {
			return fmt.Errorf("%s does not tell of %s: %w\n%s", what, u.machine, err, said)
		}
	}
	return nil
}

// permit permits it, and looks on the node, and at the Machine, when it has succeeded.
func (u *user) permit(ctx context.Context) error {
	var m clusterv1.Machine
	key := client.ObjectKey{Namespace: u.cluster.Namespace, Name: u.machine}
	if err := u.management.Client.Get(ctx, key, &m); err != nil {
		return err
	}
	u.uid = m.UID
	if _, err := u.management.Refit(ctx, "permit", "-n", u.cluster.Namespace, u.machine); err != nil {
		return err
	}
	if err := u.await(ctx, func(mu *refitv1.MachineUpdate) bool { return mu.Name == u.machine && system.Succeeded(mu) }); err != nil {
		return err
	}
	if err := u.management.Client.Get(ctx, key, &m); err != nil {
		return err
	}
	got, err := u.fleet.Node(u.machine).ReadFile(ctx, motd.Path)
	if err == nil && (string(got.Content) != motd.Content || m.UID != u.uid) {
		err = fmt.Errorf("%s has %q on the node, and is the Machine that it was: %t", motd.Path, got.Content, m.UID == u.uid)
	}
	return err
}

// await waits until a MachineUpdate is as ok says.
func (u *user) await(ctx context.Context, ok func(*refitv1.MachineUpdate) bool) error {
	last := "there is no MachineUpdate"
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
		var list refitv1.MachineUpdateList
		if err := u.management.Client.List(ctx, &list, client.InNamespace(u.cluster.Namespace)); err != nil {
			return false, nil //nolint:nilerr // it is asked again
		}
		for i := range list.Items {
			last = fmt.Sprintf("%s is %s: %s", list.Items[i].Name, list.Items[i].Status.Phase, list.Items[i].Status.Message)
			if ok(&list.Items[i]) {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("%w; %s", err, last)
	}
	return nil
}
