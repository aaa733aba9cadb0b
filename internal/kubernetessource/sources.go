package kubernetessource

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/internal/skew"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=kubernetessources,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines;clusters,verbs=get;list;watch

// Sources holds the sources as they were read last. Every replica has them.
type Sources struct {
	*policykind.Reader[*refitv1.KubernetesSource, *Source]
}

// New returns Sources that are read from a cache.
func New(cached client.Reader) *Sources {
	return &Sources{policykind.NewReader(cached, policykind.Kind[*refitv1.KubernetesSource, *Source]{
		Name: "KubernetesSource", Plural: "KubernetesSources",
		New:  func() *refitv1.KubernetesSource { return &refitv1.KubernetesSource{} },
		List: func() client.ObjectList { return &refitv1.KubernetesSourceList{} },
		Read: func(_ context.Context, k *refitv1.KubernetesSource) *Source { return Compile(k) },
	})}
}

// Selected is the source of a Machine. It is shared and is not to be changed.
type Selected struct {
	// Name is that of the source.
	Name string
	// Early reports that a version is fetched as soon as a change asks for it, and not only when the window is open.
	Early bool

	source *Source
}

// For returns where a version comes from, as a node is told, or an error for people that says why the source does not have it.
func (s *Selected) For(version string) (*node.Source, error) { return s.source.version(version) }

// EndOfLife returns when the minor version ends that a Machine runs, by the source that selects it; zero if none says so.
func (s *Sources) EndOfLife(ctx context.Context, m *clusterv1.Machine) (time.Time, error) {
	if m.Status.NodeInfo == nil {
		return time.Time{}, nil
	}
	runs, err := skew.Parse(m.Status.NodeInfo.KubeletVersion)
	if err != nil {
		return time.Time{}, nil //nolint:nilerr // a version that can't be read has no end that anybody knows
	}
	selected, err := s.Machine(ctx, m)
	if selected == nil || err != nil {
		return time.Time{}, err
	}
	minor := fmt.Sprintf("v%d.%d", runs.Major(), runs.Minor())
	for _, e := range selected.source.spec.EndOfLife {
		if e.Minor == minor {
			return time.Parse(time.DateOnly, e.Date)
		}
	}
	return time.Time{}, nil
}

// Machine returns the source of a Machine; nil if none selects it.
func (s *Sources) Machine(ctx context.Context, m *clusterv1.Machine) (*Selected, error) {
	return s.For(ctx, inplace.SubjectOf(m))
}

// For returns the source of a Machine, or of the Machines of a MachineSet; nil if none selects it. The error is an *InvalidError
// or an *AmbiguousError if somebody must correct sources first; any other one passes.
func (s *Sources) For(ctx context.Context, of inplace.Subject) (*Selected, error) {
	selecting, err := s.Selecting(ctx, of)
	if err != nil {
		return nil, err
	}
	return One(selecting...)
}

// One returns the source of a Machine that the sources select, which are in the order of their names; nil if there is none.
func One(selecting ...*Source) (*Selected, error) {
	switch len(selecting) {
	case 0:
		return nil, nil //nolint:nilnil // no source is an answer
	case 1:
	default:
		names := make([]string, len(selecting))
		for i, one := range selecting {
			names[i] = one.Name
		}
		return nil, &AmbiguousError{Sources: names}
	}
	one := selecting[0]
	if one.Err != nil {
		return nil, &InvalidError{Source: one.Name, Err: one.Err}
	}
	return &Selected{Name: one.Name, Early: one.early(), source: one}, nil
}

// InvalidError says that a Machine is brought to no version until the source that selects it is corrected.
type InvalidError struct {
	// Source is the name of the source.
	Source string
	Err    error
}

// Error implements error.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("KubernetesSource %s can't be read, so it is not known where versions come from: %v; correct the source, or delete it", e.Source, e.Err)
}

// Unwrap returns what is wrong with the source.
func (e *InvalidError) Unwrap() error { return e.Err }

// AmbiguousError says that more than one source selects a Machine.
type AmbiguousError struct {
	// Sources are their names, in order.
	Sources []string
}

// Error implements error.
func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("the KubernetesSources %s select the same machine, so it is not known which of them counts; narrow their selectors until one is left",
		strings.Join(e.Sources, ", "))
}
