// Package health asks the health gates of policies: what Prometheus says, or what objects show. Answers are kept for those who decide, who do not
// wait for them.
package health

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/policykind"
	"github.com/capi-refit/refit/internal/workload"
	"github.com/capi-refit/refit/schedule"
)

// Defaults and bounds of gates.
const (
	defaultTimeout  = 10 * time.Second
	defaultInterval = 30 * time.Second
	maxTimeout      = 30 * time.Second
	minInterval     = 10 * time.Second
	maxInterval     = time.Hour // what was so longer ago says nothing
)

// Gate is a health gate that was read. It does not change, and may be shared.
type Gate struct {
	// Name is unique in the policy.
	Name string
	// Interval is how old an answer may be that lets an update start.
	Interval time.Duration
	// IgnoresErrors has updates start while the gate can't be asked.
	IgnoresErrors bool
	// OfCluster reports that it is about objects of the workload cluster, so that each cluster has an answer of its own.
	OfCluster bool
	// URL is of the Prometheus that it asks; empty if it asks none.
	URL string

	timeout  time.Duration
	question question
}

// question is what a gate asks.
type question interface {
	// ask returns what is the case. An error says why that is not known.
	ask(ctx context.Context, from *Sources, about Subject) (verdict, error)
}

// Subject is about whom a gate is asked.
type Subject struct {
	// Namespace is the policy's.
	Namespace string
	// Cluster is the name of the Cluster; empty for a gate that is not of clusters.
	Cluster string
}

// verdict is what was found.
type verdict struct {
	holds bool
	// says is by which value, if it does not hold.
	says string
}

// Workloads reaches workload clusters.
type Workloads interface {
	Get(ctx context.Context, cluster client.ObjectKey) (*workload.Cluster, error)
}

// Sources are what gates read.
type Sources struct {
	// Management reads from the management cluster's API server.
	Management client.Reader
	Workloads  Workloads
}

// Compile reads gates. Errors name the fields. With an error there are no gates: one that can't be read, or is not allowed, is not to be asked by anybody.
func Compile(all []refitv1.HealthGate) ([]*Gate, error) {
	var out []*Gate
	var errs []error
	named := map[string]bool{}
	for i := range all {
		r := &reader{path: fmt.Sprintf("gates[%d]", i)}
		if named[all[i].Name] {
			r.wrong("name", fmt.Errorf("another gate has the name %q", all[i].Name))
		}
		named[all[i].Name] = true
		out = append(out, r.gate(&all[i]))
		errs = append(errs, r.errs...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}

// reader reads one gate.
type reader struct {
	path string
	errs []error
}

func (r *reader) wrong(field string, err error) {
	if err != nil {
		r.errs = append(r.errs, &schedule.FieldError{Field: r.path + "." + field, Err: err})
	}
}

func (r *reader) gate(g *refitv1.HealthGate) *Gate {
	out := &Gate{Name: g.Name, IgnoresErrors: r.unknown("onError", g.OnError)}
	if g.Name == "" {
		r.wrong("name", errors.New("it has none"))
	}
	out.timeout, out.Interval = r.duration("timeout", g.Timeout, defaultTimeout), r.duration("interval", g.Interval, defaultInterval)
	switch {
	case out.Interval < minInterval:
		r.wrong("interval", fmt.Errorf("%s is less than %s", out.Interval, minInterval))
	case out.Interval > maxInterval:
		r.wrong("interval", fmt.Errorf("%s is more than %s", out.Interval, maxInterval))
	case out.timeout > maxTimeout:
		r.wrong("timeout", fmt.Errorf("%s is more than %s", out.timeout, maxTimeout))
	case 2*out.timeout > out.Interval:
		r.wrong("timeout", fmt.Errorf("%s is more than half of the interval, %s: an answer that takes as long would be too old for the next start", out.timeout, out.Interval))
	}
	switch p, c := g.Prometheus, g.CEL; {
	case (p == nil) == (c == nil):
		r.errs = append(r.errs, &schedule.FieldError{Field: r.path, Err: errors.New("it is to have either prometheus or cel")})
	case p != nil:
		out.URL = p.URL
		out.question = r.prometheus(p)
	default:
		q := r.cel(c)
		out.OfCluster, out.question = q.ofCluster(), q
	}
	return out
}

// unknown reports whether what is not known is ignored.
func (r *reader) unknown(field string, u refitv1.OnUnknown) bool {
	if err := policykind.Word(r.path+"."+field, u, "", refitv1.HoldOnUnknown, refitv1.IgnoreOnUnknown); err != nil {
		r.errs = append(r.errs, err)
	}
	return u == refitv1.IgnoreOnUnknown
}

func (r *reader) duration(field, value string, preset time.Duration) time.Duration {
	if value == "" {
		return preset
	}
	d, err := schedule.ParseDuration(value)
	r.wrong(field, err)
	return d
}

// subject returns about whom a gate is asked for the Machines of a Cluster.
func (g *Gate) subject(policy types.NamespacedName, cluster string) Subject {
	s := Subject{Namespace: policy.Namespace}
	if g.OfCluster {
		s.Cluster = cluster
	}
	return s
}

// short returns a text on one line of at most so many bytes. What others have written is not repeated at length.
func short(text string, most int) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }), " ")
	const more = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}
