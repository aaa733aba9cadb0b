package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/internal/agent/staticpod"
	"github.com/capi-refit/refit/internal/node"
)

// apiPatience is how long the API server may take to answer for what it is asked before anything is changed.
const apiPatience = 30 * time.Second

// extraArgs are written as a map up to kubeadm's v1beta3, and as a list from v1beta4 on.
type extraArgs []node.Arg

// UnmarshalJSON implements json.Unmarshaler.
func (e *extraArgs) UnmarshalJSON(data []byte) error {
	var list []node.Arg
	if json.Unmarshal(data, &list) == nil {
		*e = list
		return nil
	}
	var byName map[string]string
	if err := json.Unmarshal(data, &byName); err != nil {
		return errors.New("extraArgs are neither a list nor a map")
	}
	*e = nil
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		*e = append(*e, node.Arg{Name: name, Value: byName[name]})
	}
	return nil
}

// configured is one component of kubeadm's ClusterConfiguration.
type configured struct {
	ExtraArgs    extraArgs          `json:"extraArgs"`
	ExtraEnvs    []node.Env         `json:"extraEnvs"`
	ExtraVolumes []node.ExtraVolume `json:"extraVolumes"`
	// CertSANs are the API server's only, the others etcd's.
	CertSANs        []string `json:"certSANs"`
	ServerCertSANs  []string `json:"serverCertSANs"`
	PeerCertSANs    []string `json:"peerCertSANs"`
	ImageRepository string   `json:"imageRepository"`
	ImageTag        string   `json:"imageTag"`
	DataDir         string   `json:"dataDir"`
}

// clusterConfiguration is as much of kubeadm's as is compared.
type clusterConfiguration struct {
	APIVersion        string          `json:"apiVersion"`
	KubernetesVersion string          `json:"kubernetesVersion"`
	ImageRepository   string          `json:"imageRepository"`
	FeatureGates      map[string]bool `json:"featureGates"`
	APIServer         configured      `json:"apiServer"`
	ControllerManager configured      `json:"controllerManager"`
	Scheduler         configured      `json:"scheduler"`
	Etcd              struct {
		Local    *configured `json:"local"`
		External any         `json:"external"`
	} `json:"etcd"`
	// whole is all of it, to be handed to kubeadm.
	whole map[string]any
}

// configuration reads what kubeadm will make the manifests from: the ConfigMap kube-system/kubeadm-config of the cluster.
func (k *Kind) configuration(ctx context.Context) (*clusterConfiguration, error) {
	ctx, cancel := context.WithTimeout(ctx, apiPatience)
	defer cancel()
	var object struct {
		Data map[string]string `json:"data"`
	}
	err := staticpod.Until(ctx, k.host.Clock, func() error {
		c, err := staticpod.Connect(k.host.Root, staticpod.AdminConfig)
		if err != nil {
			return err
		}
		return c.Get(ctx, "/api/v1/namespaces/kube-system/configmaps/kubeadm-config", nil, &object)
	})
	if err != nil {
		return nil, fmt.Errorf("kubeadm-config can't be read: %w", err)
	}
	c := &clusterConfiguration{}
	text := []byte(object.Data["ClusterConfiguration"])
	if yaml.Unmarshal(text, c) != nil || yaml.Unmarshal(text, &c.whole) != nil || c.APIVersion == "" {
		return nil, errors.New("kubeadm-config in kube-system can't be read: it has no ClusterConfiguration of kubeadm's")
	}
	if c.Etcd.Local == nil && c.Etcd.External == nil {
		c.Etcd.Local = &configured{} // kubeadm's default, which Cluster API's control plane provider relies on
	}
	return c, nil
}

// component returns one by the name of its pod, or nil.
func (c *clusterConfiguration) component(name string) *configured {
	switch name {
	case apiServer:
		return &c.APIServer
	case controllerManager:
		return &c.ControllerManager
	case scheduler:
		return &c.Scheduler
	default:
		return c.Etcd.Local
	}
}

// check returns an error unless the cluster's configuration is what the specs want, so that kubeadm makes that and nothing else out
// of it. Cluster API's control plane provider writes it before it has machines updated. next is the version of Kubernetes that the node is
// brought to before, or empty. The error contains no values.
func (c *clusterConfiguration) check(s shown, want, was *node.ControlPlane, next string) error {
	if want.Etcd != nil && c.Etcd.Local == nil {
		return errors.New("kubeadm-config in kube-system has no local etcd, but the specs do")
	}
	if other := append(c.componentsDiffer(want), c.commonDiffers(want, was)...); len(other) > 0 {
		return fmt.Errorf("kubeadm-config in kube-system does not say what the specs do (%s), and kubeadm goes by it; "+
			"Cluster API's control plane provider writes it, or a person has changed it since", strings.Join(other, ", "))
	}
	return c.checkVersion(s, next)
}

// componentsDiffer returns the fields of the components that are not what the specs say.
func (c *clusterConfiguration) componentsDiffer(want *node.ControlPlane) (other []string) {
	for _, name := range pods {
		if spec := component(want, name); spec != nil {
			for _, field := range c.component(name).differs(name, spec) {
				other = append(other, name+" "+field)
			}
		}
	}
	return other
}

// commonDiffers returns the other fields that are not what the specs say. Feature gates can be more than those: Cluster API adds some.
func (c *clusterConfiguration) commonDiffers(want, was *node.ControlPlane) (other []string) {
	if !sameSet(c.APIServer.CertSANs, want.CertSANs) {
		other = append(other, "certSANs")
	}
	for gate, on := range want.FeatureGates {
		if is, ok := c.FeatureGates[gate]; !ok || is != on {
			other = append(other, "featureGates")
			break
		}
	}
	// Cluster API's control plane provider leaves the repository as it is when the specs drop theirs.
	dropped := want.ImageRepository == "" && was != nil && was.ImageRepository != ""
	if want.ImageRepository != "" && c.ImageRepository != want.ImageRepository || dropped && c.ImageRepository == was.ImageRepository {
		other = append(other, "imageRepository")
	}
	return other
}

// checkVersion returns an error if kubeadm would bring another version of Kubernetes than the node runs, or is about to run.
func (c *clusterConfiguration) checkVersion(s shown, next string) error {
	_, tag := splitImage(container(s.manifests[apiServer], apiServer).Image)
	if TagOf(c.KubernetesVersion) != tag && (next == "" || c.KubernetesVersion != next) {
		return fmt.Errorf("kubeadm-config says Kubernetes %s, but the node runs %s of version %q, so kubeadm would change the version too; "+
			"have the version updated first", c.KubernetesVersion, apiServer, tag)
	}
	return nil
}

// differs returns the fields that are not what the specs say.
func (c *configured) differs(name string, spec *node.Component) []string {
	var fields []string
	if !reflect.DeepEqual(byName(c.ExtraArgs), byName(spec.ExtraArgs)) {
		fields = append(fields, "extraArgs")
	}
	if !sameSet(c.ExtraEnvs, spec.ExtraEnvs) {
		fields = append(fields, "extraEnvs")
	}
	if !sameSet(c.ExtraVolumes, spec.ExtraVolumes) {
		fields = append(fields, "extraVolumes")
	}
	if name != etcdMember {
		return fields
	}
	if c.ImageRepository != spec.ImageRepository || c.ImageTag != spec.ImageTag {
		fields = append(fields, "image")
	}
	if !sameSet(c.ServerCertSANs, spec.ServerCertSANs) {
		fields = append(fields, "serverCertSANs")
	}
	if !sameSet(c.PeerCertSANs, spec.PeerCertSANs) {
		fields = append(fields, "peerCertSANs")
	}
	return fields
}

// sameSet compares without regard to order.
func sameSet[T comparable](a, b []T) bool {
	in := func(list []T) map[T]bool {
		set := map[T]bool{}
		for _, v := range list {
			set[v] = true
		}
		return set
	}
	return maps.Equal(in(a), in(b))
}
