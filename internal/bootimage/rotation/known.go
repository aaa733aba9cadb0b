package rotation

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=bootimagepolicies;nodedisruptionpolicies,verbs=list

// What decides about a target besides its policy and the ConfigMap, and its Cluster, which goes by its name.
const (
	byPolicies  = "all policies"
	byExtension = "the ExtensionConfig"
)

func byCluster(name string) string { return "Cluster " + name }

func byMembers(t *target) string { return "the Machines of " + t.String() }

// seen is how something was found, as a digest, and since when it is so. It is kept in memory: a new leader has seen nothing yet, and
// waits. It is not among the inputs, since these also say what counts as the same image brought again.
type seen struct {
	digest string
	since  time.Time
}

// takeIn reads what decides about the targets besides the policy and the ConfigMap, and notes since when it is as it is. What is not
// there any more is forgotten.
func (p *pass) takeIn(ctx context.Context, targets []*target) error {
	found := map[string]string{}
	var err error
	if found[byPolicies], err = p.allPolicies(ctx); err != nil {
		return err
	}
	for _, t := range targets {
		found[byCluster(t.cluster.Name)] = digestOf(t.cluster.UID, t.cluster.Labels)
	}
	if p.policy.Spec.Rotation.Replacement != refitv1.AllowReplacement {
		digest, unasked, err := p.askedBy(ctx)
		if err != nil {
			return err
		}
		p.unasked = unasked
		if unasked == "" {
			found[byExtension] = digest
		}
	}
	key := client.ObjectKeyFromObject(p.policy)
	value, _ := p.remembered.Load(key)
	p.earlier, _ = value.(map[string]seen)
	p.known = map[string]seen{}
	for what, digest := range found {
		p.sight(what, digest)
	}
	p.remembered.Store(key, p.known)
	return nil
}

// sight notes how something was found.
func (p *pass) sight(what, digest string) {
	p.known[what] = seen{digest: digest, since: p.Clock.Now()}
	if was, had := p.earlier[what]; had && was.digest == digest {
		p.known[what] = was
	}
}

// settledFor reports whether all that policies say of a target's machines has been so for long enough.
func (p *pass) settledFor(t *target) bool {
	return p.settled && p.stands(byPolicies) && p.stands(byCluster(t.cluster.Name)) && (!p.keepsEach(t) || p.stands(byMembers(t)))
}

// stands reports whether something has been as it is for long enough that everybody can be expected to know it.
func (p *pass) stands(what string) bool {
	s, there := p.known[what]
	return there && p.Clock.Since(s.since) >= settling
}

// overtaken reports whether something that decides has changed since it was taken in. What judges hears of it at once, and the other
// replicas may not have.
func (p *pass) overtaken(ctx context.Context, t *target) (bool, error) {
	policies, err := p.allPolicies(ctx)
	if err != nil || policies != p.known[byPolicies].digest {
		return true, err
	}
	var cluster clusterv1.Cluster
	if err := p.Live.Get(ctx, client.ObjectKeyFromObject(t.cluster), &cluster); err != nil {
		return true, fmt.Errorf("read Cluster %s: %w", client.ObjectKeyFromObject(t.cluster), err)
	}
	if digestOf(cluster.UID, cluster.Labels) != p.known[byCluster(t.cluster.Name)].digest {
		return true, nil
	}
	if !p.keepsEach(t) {
		return false, nil
	}
	members, err := p.members(ctx, t)
	return digestOfMembers(members) != p.known[byMembers(t)].digest, err
}

// allPolicies is a digest of the policies of the namespace by which the hooks are answered whether machines stay.
func (p *pass) allPolicies(ctx context.Context) (string, error) {
	var all []string
	for _, kind := range []string{"BootImagePolicy", "NodeDisruptionPolicy"} {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(refitv1.GroupVersion.WithKind(kind + "List"))
		if err := p.Live.List(ctx, &list, client.InNamespace(p.policy.Namespace)); err != nil {
			return "", fmt.Errorf("list what decides whether machines of %s stay: %w", p.policy.Namespace, err)
		}
		for i := range list.Items {
			all = append(all, fmt.Sprintf("%s %d", list.Items[i].UID, list.Items[i].Generation))
		}
	}
	slices.Sort(all)
	return digestOf(all), nil
}
