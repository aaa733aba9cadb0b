package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind is what of a machine a change is of.
//
// +kubebuilder:validation:Enum=Configuration;PatchVersion;MinorVersion;Image
type Kind string

// The kinds.
const (
	ConfigurationKind Kind = "Configuration" // all that is none of the others; to bring back a node that has drifted is one, too
	PatchVersionKind  Kind = "PatchVersion"  // another patch of the same minor version of Kubernetes
	MinorVersionKind  Kind = "MinorVersion"  // another minor version of Kubernetes
	ImageKind         Kind = "Image"         // what the machine boots from
)

// allKinds are the kinds, in the order of their bits in a class.
var allKinds = []Kind{ConfigurationKind, PatchVersionKind, MinorVersionKind, ImageKind}

// Kinds returns the kinds of changes that there are.
func Kinds() []Kind { return slices.Clone(allKinds) }

// Disruption is the worst of what a change takes on a node: one of the actions of a NodeDisruptionPolicy, or Replace.
//
// +kubebuilder:validation:Enum=None;DaemonReload;TrustStoreUpdate;RebuildInitramfs;RebuildBootloader;Reload;Restart;NetworkReload;StaticPodRefresh;Drain;Reboot;Replace
type Disruption string

// NoDisruption takes nothing, and ReplaceDisruption takes the machine: they are the least and the worst of Disruptions.
const (
	NoDisruption      Disruption = "None"
	ReplaceDisruption Disruption = "Replace"
)

// allDisruptions are the disruptions, from none to the worst.
var allDisruptions = []Disruption{
	NoDisruption, "DaemonReload", "TrustStoreUpdate", "RebuildInitramfs", "RebuildBootloader", "Reload", "Restart", "NetworkReload",
	"StaticPodRefresh", "Drain", "Reboot", ReplaceDisruption,
}

// Disruptions returns the disruptions that there are, from none to the worst.
func Disruptions() []Disruption { return slices.Clone(allDisruptions) }

// PermittedChanges is which changes a permit is for. What is left out is not asked.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:object:generate=true
type PermittedChanges struct {
	// maxDisruption is the worst that a change may take on the node, such as Restart: reloads may start, reboots may not.
	// +optional
	MaxDisruption Disruption `json:"maxDisruption,omitempty"`

	// kinds lists what a change may be of. One of several kinds takes a permit that has all of them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	Kinds []Kind `json:"kinds,omitempty"`
}

// ExcludedChanges is which changes an exclude is for. What is left out is not asked.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:object:generate=true
type ExcludedChanges struct {
	// minDisruption is the least that a change takes on the node to be excluded, such as Reboot: reboots are frozen, reloads are not.
	// +optional
	MinDisruption Disruption `json:"minDisruption,omitempty"`

	// kinds lists what is frozen. A change of several kinds is if one of them is.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	Kinds []Kind `json:"kinds,omitempty"`
}

// Class is what scopes ask of a change. What is not known counts as the worst that it could be: as all kinds, and as Replace.
type Class struct {
	// Kinds are what it is of. None: that is not known.
	Kinds []Kind
	// Disruption is the worst that it takes on the node. Empty: that is not known.
	Disruption Disruption
}

// String returns what is told of the change, behind "this one" or "a change that".
func (c Class) String() string {
	kinds, disruption := "is of "+listed(c.Kinds), "takes "+string(c.Disruption)
	switch {
	case len(c.Kinds) == 0 && c.Disruption == "":
		return "may be of any kind and take anything, since that is not known yet"
	case c.Disruption == "":
		return kinds + ", and it is not known yet what it takes"
	case len(c.Kinds) == 0:
		return disruption
	default:
		return kinds + " and " + disruption
	}
}

// class is a Class that can be compared.
type class struct {
	kinds      kindSet
	disruption int
}

// kindSet has a bit for each kind.
type kindSet uint8

// everyKind has all kinds, and worst is the rank of the worst disruption.
var (
	everyKind = kindSet(1<<len(allKinds) - 1)
	worst     = len(allDisruptions) - 1
)

func (c Class) class() class {
	out := class{disruption: worst}
	for _, k := range c.Kinds {
		i := slices.Index(allKinds, k)
		if i < 0 {
			out.kinds = everyKind
			break
		}
		out.kinds |= 1 << i
	}
	if out.kinds == 0 {
		out.kinds = everyKind
	}
	if i := slices.Index(allDisruptions, c.Disruption); i >= 0 {
		out.disruption = i
	}
	return out
}

// scope is the changes that a source is for. Without one it is for all.
type scope struct {
	kinds kindSet
	// permits: each kind of a change must be in it, and its disruption at most the limit. Else one kind is enough, and it is at least the limit.
	permits bool
	limit   int
	text    string
}

// has reports whether a change is in the scope.
func (s *scope) has(c class) bool {
	switch {
	case s == nil:
		return true
	case s.permits:
		return c.kinds&^s.kinds == 0 && c.disruption <= s.limit
	default:
		return c.kinds&s.kinds != 0 && c.disruption >= s.limit
	}
}

// after returns the text of a source with what it is for.
func (s *scope) after(text string) string {
	if s == nil {
		return text
	}
	return text + ", for " + s.text
}

func (p *PermittedChanges) scope(field string) (*scope, error) {
	if p == nil {
		return nil, nil
	}
	s := &scope{permits: true, limit: worst}
	if err := s.read(field, p.Kinds, "maxDisruption", p.MaxDisruption); err != nil {
		return nil, err
	}
	if s.text = "changes" + of(p.Kinds); p.MaxDisruption != "" {
		s.text += " up to " + string(p.MaxDisruption)
	}
	return s, nil
}

func (x *ExcludedChanges) scope(field string) (*scope, error) {
	if x == nil {
		return nil, nil
	}
	s := &scope{}
	if err := s.read(field, x.Kinds, "minDisruption", x.MinDisruption); err != nil {
		return nil, err
	}
	if s.text = "changes" + of(x.Kinds); x.MinDisruption != "" {
		s.text += " from " + string(x.MinDisruption) + " on"
	}
	return s, nil
}

// read reads what permits and excludes have in common.
func (s *scope) read(field string, kinds []Kind, name string, limit Disruption) error {
	if kinds == nil && limit == "" {
		return at(field, fmt.Errorf("it says nothing; give it kinds or %s, or leave it out", name))
	}
	if kinds != nil && len(kinds) == 0 {
		return at(field+".kinds", errors.New("there are none in it"))
	}
	s.kinds = everyKind
	if kinds != nil {
		s.kinds = 0
	}
	for _, k := range kinds {
		i := slices.Index(allKinds, k)
		if i < 0 {
			return at(field+".kinds", fmt.Errorf("%q is none of %s", k, listed(allKinds)))
		}
		s.kinds |= 1 << i
	}
	if limit == "" {
		return nil
	}
	if s.limit = slices.Index(allDisruptions, limit); s.limit < 0 {
		return at(field+"."+name, fmt.Errorf("%q is none of %s", limit, listed(allDisruptions)))
	}
	return nil
}

func of(kinds []Kind) string {
	if len(kinds) == 0 {
		return ""
	}
	return " of " + listed(kinds)
}

// listed returns words as people list them.
func listed[T ~string](all []T) string {
	words := make([]string, len(all))
	for i, w := range all {
		words[i] = string(w)
	}
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
