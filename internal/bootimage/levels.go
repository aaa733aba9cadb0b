package bootimage

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Level is what is known of the machines that come next, of those that are made from one template: whether they come up with the version of Kubernetes that
// Machines run which were updated in place.
type Level struct {
	// Template is what makes them.
	Template string
	// Stale reports that they would come up with an older version. Else it is not known.
	Stale bool
	// Says is a sentence for people.
	Says string
}

// Levels compares all Machines with the images that their infrastructure machines name, be they selected by policies or not. Of those that come up as
// they should it says nothing. What can't be read is told, and no error.
func Levels(ctx context.Context, live client.Reader, policies *Policies, machines []clusterv1.Machine) ([]Level, error) {
	byKind := map[schema.GroupKind][]*machine{}
	var all []*machine
	for i := range machines {
		m := &machines[i]
		if !m.DeletionTimestamp.IsZero() || !m.Spec.InfrastructureRef.IsDefined() {
			continue
		}
		selected, err := policies.Machine(ctx, m)
		if err != nil {
			return nil, err
		}
		one := &machine{Machine: m, kinds: selected.Kinds}
		all, byKind[kindOf(m)] = append(all, one), append(byKind[kindOf(m)], one)
	}
	unread := map[schema.GroupKind]error{}
	for kind, of := range byKind {
		if err := readKind(ctx, live, kind, of); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			unread[kind] = err
		}
	}
	slices.SortFunc(all, func(a, b *machine) int { return strings.Compare(a.Name, b.Name) })
	var out []Level
	for _, m := range all {
		out = addLevel(out, m, unread[kindOf(m.Machine)])
	}
	return out, nil
}

// addLevel adds what is known of a Machine. Of each template one is told: that would be older rather than that of which it is not known.
func addLevel(levels []Level, m *machine, unread error) []Level {
	stale, why := levelOf(m, unread)
	if !stale && why == "" {
		return levels
	}
	l := Level{Template: m.template(), Stale: stale}
	if stale {
		l.Says = fmt.Sprintf("a machine that is made now from %s boots an older version of Kubernetes than machines that run: it names %s, and Machine %s is of %s",
			l.Template, m.infra.image, m.Name, m.Spec.Version)
	} else {
		l.Says = fmt.Sprintf("Unknown: whether a machine that is made now from %s comes up with %s, as Machine %s is: %s", l.Template, m.Spec.Version, m.Name, why)
	}
	i := slices.IndexFunc(levels, func(o Level) bool { return o.Template == l.Template })
	switch {
	case i < 0:
		return append(levels, l)
	case stale && !levels[i].Stale:
		levels[i] = l
	}
	return levels
}

// levelOf reports whether the image that a Machine names has an older version than it runs, and why that is not known.
func levelOf(m *machine, unread error) (stale bool, why string) {
	runs, known := parseVersion(m.Spec.Version)
	switch {
	case !known:
		return false, "the Machine has no version"
	case unread != nil:
		return false, unread.Error()
	case m.infra == nil:
		return false, fmt.Sprintf("there is no %s %s", m.Spec.InfrastructureRef.Kind, m.Spec.InfrastructureRef.Name)
	case m.infra.controller != "":
		return false, m.infra.controller + " makes the infrastructure machine"
	case m.infra.image == "":
		return false, fmt.Sprintf("refit does not know where a %s names its image; the kinds of a BootImagePolicy can say it", m.Spec.InfrastructureRef.Kind)
	case strings.HasPrefix(m.infra.image, implicit):
		return false, "" // the provider finds one by the version
	}
	has := newestOfKubernetes(m.infra.image)
	if has == nil {
		return false, fmt.Sprintf("%s does not say which version of Kubernetes is in it", m.infra.image)
	}
	return has.compare(runs) < 0, ""
}

// template is what makes machines like one.
func (m *machine) template() string {
	if m.infra != nil && m.infra.template != "" {
		return m.Spec.InfrastructureRef.Kind + "Template " + m.infra.template
	}
	return "a template of a " + m.Spec.InfrastructureRef.Kind
}
