package system

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/cloudinit"
	"github.com/capi-refit/refit/test/nodes"
)

// Names of what tells refit how to reach the nodes.
const (
	AccessName     = "lab"
	KeySecret      = "refit-ssh"
	KnownHostsName = "refit-known-hosts"
)

// cloud gives a node to each Machine. Its part in a real installation is played by the infrastructure provider and by
// cloud-init.
type cloud struct {
	*System
	done chan struct{}
}

// startNodes starts a node for each Machine, and for those that come later.
func (s *System) startNodes(ctx context.Context) error {
	machines, err := s.Cluster.Machines(ctx)
	if err != nil {
		return err
	}
	s.cloud = &cloud{System: s, done: make(chan struct{})}
	if err := s.cloud.startAll(ctx, machines); err != nil {
		return err
	}
	if err := s.cloud.grantAccess(ctx); err != nil {
		return err
	}
	watch, cancel := context.WithCancel(ctx)
	go s.cloud.watch(watch)
	s.onStop(func() error { cancel(); <-s.cloud.done; return nil })
	return nil
}

// startAll starts a node for each Machine, or finds the one that the infrastructure provider has made.
func (c *cloud) startAll(ctx context.Context, machines []clusterv1.Machine) error {
	var names []string
	for _, m := range machines {
		names = append(names, m.Name)
	}
	var err error
	if c.options.Nodes == nodes.Machines {
		c.Fleet, err = nodes.Adopt(ctx, nodes.AdoptOptions{
			Engine: c.Lab.Engine(), Names: names, PrivateKey: c.Lab.MachineKey(), Progress: c.options.Progress,
		})
	} else {
		c.Fleet, err = nodes.Start(ctx, nodes.Options{Names: names, Kind: c.options.Nodes, Progress: c.options.Progress})
	}
	if err != nil {
		return err
	}
	c.onStop(func() error { return c.Fleet.Stop(context.WithoutCancel(ctx)) })
	for _, m := range machines {
		if err := c.boot(ctx, &m); err != nil {
			return err
		}
	}
	return nil
}

// isNew reports whether a Machine is to get a node now. A real one has to be there before it can be found.
func (c *cloud) isNew(m *clusterv1.Machine) bool {
	if c.Fleet.Node(m.Name) != nil || m.Spec.Bootstrap.DataSecretName == nil || !m.DeletionTimestamp.IsZero() {
		return false
	}
	return c.options.Nodes != nodes.Machines || m.Status.NodeRef.IsDefined()
}

// watch boots a node for each Machine that comes.
func (c *cloud) watch(ctx context.Context) {
	defer close(c.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		machines, err := c.Cluster.Machines(ctx)
		if err != nil {
			continue
		}
		for _, m := range machines {
			if !c.isNew(&m) {
				continue
			}
			if err := c.add(ctx, &m); err != nil && ctx.Err() == nil {
				c.say("no node for Machine %s: %v", m.Name, err)
			}
		}
	}
}

func (c *cloud) add(ctx context.Context, m *clusterv1.Machine) error {
	if _, err := c.Fleet.Add(ctx, m.Name); err != nil {
		return err
	}
	if err := c.boot(ctx, m); err != nil {
		return err
	}
	return c.TrustNodes(ctx)
}

// boot boots the node of a Machine. A real machine has booted, and reports its addresses itself.
func (c *cloud) boot(ctx context.Context, m *clusterv1.Machine) error {
	if c.options.Nodes == nodes.Machines {
		return nil
	}
	return Boot(ctx, c.Client, c.Fleet, m)
}

// Boot does to a Machine's node in a fleet what cloud-init does on the first boot, as far as files are concerned, and publishes the node's address.
func Boot(ctx context.Context, c client.Client, fleet *nodes.Fleet, m *clusterv1.Machine) error {
	var secret corev1.Secret
	if err := c.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: *m.Spec.Bootstrap.DataSecretName}, &secret); err != nil {
		return fmt.Errorf("read the bootstrap data of %s: %w", m.Name, err)
	}
	var config struct {
		WriteFiles []struct{ Path, Content, Encoding, Owner, Permissions string } `json:"write_files"`
	}
	if err := yaml.Unmarshal(secret.Data["value"], &config); err != nil {
		return fmt.Errorf("read the bootstrap data of %s: %w", m.Name, err)
	}
	n := fleet.Node(m.Name)
	for _, f := range config.WriteFiles {
		content, err := cloudinit.Decode(f.Encoding, []byte(f.Content))
		if err != nil {
			return fmt.Errorf("file %s of %s: %w", f.Path, m.Name, err)
		}
		if err := n.WriteFile(ctx, f.Path, nodes.File{Content: content, Mode: f.Permissions, Owner: f.Owner}); err != nil {
			return err
		}
	}
	patch := client.MergeFrom(m.DeepCopy())
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, refitv1.AddressAnnotation, n.Address().String())
	return c.Patch(ctx, m, patch)
}

// grantAccess tells refit how to reach the nodes.
func (c *cloud) grantAccess(ctx context.Context) error {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: c.Cluster.Namespace, Name: name}
	}
	key := &corev1.Secret{ObjectMeta: meta(KeySecret), Data: map[string][]byte{"ssh-privatekey": c.Fleet.PrivateKey()}}
	if err := c.Client.Create(ctx, key); err != nil {
		return err
	}
	if err := c.TrustNodes(ctx); err != nil {
		return err
	}
	access := Access(c.Fleet.Kind())
	access.ObjectMeta = meta(AccessName)
	access.Spec.ClusterName = c.Cluster.Name
	return c.Client.Create(ctx, access)
}

// Access returns a NodeAccess that says how the nodes of a kind are reached, with the key in KeySecret and the hosts' keys in KnownHostsName.
func Access(kind nodes.Kind) *refitv1.NodeAccess {
	access := &refitv1.NodeAccess{}
	access.Spec.SSH = refitv1.SSHAccess{
		User: nodes.User, Sudo: true, PrivateKeySecretRef: refitv1.SecretKeyReference{Name: KeySecret},
		HostKeys: refitv1.HostKeys{Policy: refitv1.HostKeyPinned, SecretRef: &refitv1.SecretKeyReference{Name: KnownHostsName}},
	}
	if kind == nodes.StandIns {
		// A stand-in runs as this user, below a directory of its own.
		access.Spec.SSH.Sudo, access.Spec.AgentDirectory = false, "bin-refit"
	}
	return access
}

// TrustNodes pins the host keys of all nodes.
func (s *System) TrustNodes(ctx context.Context) error { return s.Trust(ctx, s.Fleet.KnownHosts()) }

// Trust pins host keys, given as a known_hosts file.
func (s *System) Trust(ctx context.Context, knownHosts []byte) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Cluster.Namespace, Name: KnownHostsName}}
	_, err := controllerutil.CreateOrUpdate(ctx, s.Client, secret, func() error {
		secret.Data = map[string][]byte{"known_hosts": knownHosts}
		return nil
	})
	return err
}
