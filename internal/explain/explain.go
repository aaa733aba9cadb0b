package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/rollout"
	"github.com/capi-refit/refit/schedule"
)

// Judge decides about changes, as the hooks do. handlers.Engine is one.
type Judge interface {
	ExplainChange(ctx context.Context, s inplace.Subject, change fieldset.Change) (*handlers.Explanation, error)
}

// Timetable says when changes may start.
type Timetable interface {
	// When returns when a change of machines may start. Nil: nothing is known of policies.
	When(ctx context.Context, of Question) (*When, error)
}

// Question is about which machines and which change a Timetable is asked.
type Question struct {
	inplace.Subject
	// Machine is the one that it is about, if that is known. Then there is no Subject.
	Machine *clusterv1.Machine
	Class   schedule.Class
	// Material reports that the change disturbs the node, and Replaces that it replaces the machine.
	Material, Replaces bool
}

// Explainer makes forecasts.
type Explainer struct {
	Judge Judge
	// Timetable may be nil: then nothing is said of when.
	Timetable Timetable
	Now       time.Time
	// Populated reports that machines may be there whatever replicas say: a change at 0 replicas is told as for machines that are.
	Populated bool
}

// sides are what is, and what will be.
type sides struct{ from, to *Set }

// Compare says what becomes of machines when one side becomes the other.
func (e *Explainer) Compare(ctx context.Context, from, to *Set) (*Forecast, error) {
	s := sides{from, to}
	f := NewForecast()
	for _, key := range union(from, to) {
		var owners []*Owner
		var err error
		switch key.GroupKind {
		case deployments, controlPlanes:
			var o *Owner
			if o, err = e.owner(ctx, s, key); o != nil {
				owners = []*Owner{o}
			}
		case clusters:
			owners, err = e.topology(ctx, s, key)
		}
		if err != nil {
			return nil, err
		}
		f.Owners = append(f.Owners, owners...)
	}
	alone, notes, err := e.alone(ctx, s)
	if err != nil {
		return nil, err
	}
	f.Owners, f.Notes = append(f.Owners, alone...), append(f.Notes, notes...)
	if note := leftOut(from, to); note != "" {
		f.Notes = append(f.Notes, note)
	}
	f.Finish()
	return f, nil
}

// side is one version of an owner, as far as it matters.
type side struct {
	replicas int
	given    bool // replicas are
	paused   bool
	onDelete bool
	limits   rollout.Limits
	// surges: a rollout makes a machine more, for which an old one goes in the end.
	surges bool
	// after is from when on all machines made before are replaced, and before how many days before their certificates end.
	after        *time.Time
	before       int32
	controlPlane bool
	labels       map[string]string
	cluster      string
	version      string
	// bootstrap is what the machines come up with; empty where that is not known, or nothing.
	bootstrap schema.GroupKind
}

// owner says what becomes of the machines of a MachineDeployment or a KubeadmControlPlane. Nil: there is nothing to be said.
func (e *Explainer) owner(ctx context.Context, s sides, key Key) (*Owner, error) {
	a, b := s.from.Get(key), s.to.Get(key)
	o := newOwner(key)
	switch {
	case a == nil:
		now, err := s.read(s.to, b)
		if err != nil {
			return nil, err
		}
		o.comes(now)
		return o, nil
	case b == nil:
		was, err := s.read(s.from, a)
		if err != nil {
			return nil, err
		}
		o.goes(was)
		return o, nil
	}
	was, err := s.read(s.from, a)
	if err != nil {
		return nil, err
	}
	will, err := s.read(s.to, b)
	if err != nil {
		return nil, err
	}
	o.Cluster = will.cluster
	reasons, err := rollout.Reasons(ctx, a, b)
	if err != nil {
		o.unknown("what Cluster API makes of the edit can't be told: " + err.Error())
		o.scale(was, will)
		return o, nil
	}
	o.Because = append(o.Because, reasons...)
	edited, err := s.edited(ctx, key, b)
	if err != nil {
		return nil, err
	}
	o.Notes = append(o.Notes, edited...)
	if len(reasons) > 0 {
		err = e.decide(ctx, s, o, was, a, b)
	} else {
		err = o.initialized(ctx, a, b)
	}
	if err != nil {
		return nil, err
	}
	return o, e.settle(ctx, o, key, was, will)
}

// initialized looks at what only the machine has that the cluster was initialized with, where nothing else differs.
func (o *Owner) initialized(ctx context.Context, a, b *unstructured.Unstructured) error {
	reasons, err := rollout.InitReasons(ctx, a, b)
	if err != nil {
		return fmt.Errorf("compare what the first machine of %s has: %w", keyOf(b), err)
	}
	if len(reasons) > 0 {
		o.firstMachine(reasons...)
	}
	return nil
}

// firstMachine says what becomes of the machine that the cluster was initialized with, for fields that only this one has.
func (o *Owner) firstMachine(because ...string) {
	o.Because = append(o.Because, because...)
	o.unknown("only the machine that the cluster was initialized with has what differs: Cluster API rolls it out if it is still there, which can't be told, and no other machine")
}

func newOwner(key Key) *Owner {
	return &Owner{
		Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, Verdict: None, Disruption: disruption.None,
		Because: []string{}, Actions: []string{}, Fields: []handlers.FieldExplanation{}, Adds: []string{}, Notes: []string{},
	}
}

func (o *Owner) comes(now *side) {
	o.Cluster, o.Verdict, o.Machines = now.cluster, New, Counts{Made: now.replicas}
	o.notReplicas(now)
}

func (o *Owner) goes(was *side) {
	o.Cluster, o.Verdict, o.Disruption, o.Machines = was.cluster, Deleted, "", Counts{Total: was.replicas, Deleted: was.replicas}
	o.Notes = append(o.Notes, "it is not there any more: where it is deleted, its machines are")
	o.notReplicas(was)
}

func (o *Owner) notReplicas(of *side) {
	if !of.given {
		o.Notes = append(o.Notes, "its replicas are not set, and counted as 1: an autoscaler may know better")
	}
}

func (o *Owner) unknown(why string) {
	o.Verdict, o.Disruption = Unknown, ""
	o.Notes = append(o.Notes, why)
}

func (o *Owner) scale(was, will *side) {
	o.Machines.Total = was.replicas
	o.notReplicas(will)
	switch d := will.replicas - was.replicas; {
	case d > 0:
		o.Machines.Made = d
		if o.Verdict == None {
			o.Verdict = New
		}
	case d < 0:
		o.Machines.Deleted = -d
	}
	if was.replicas != will.replicas {
		o.Notes = append(o.Notes, fmt.Sprintf("it is scaled from %d to %d machines", was.replicas, will.replicas))
	}
}

// decide finds out what becomes of machines that Cluster API rolls out. What can't be told is Unknown, and no error.
func (e *Explainer) decide(ctx context.Context, s sides, o *Owner, was *side, a, b *unstructured.Unstructured) error {
	now, wanted, err := s.made(a, b)
	if err != nil {
		o.unsure(err)
		return nil
	}
	return e.judge(ctx, o, was, now, wanted)
}

// judge asks the updaters about a change.
func (e *Explainer) judge(ctx context.Context, o *Owner, was *side, now, wanted rollout.Made) error {
	change, err := rollout.Compare(ctx, now, wanted)
	if err == nil {
		var x *handlers.Explanation
		if x, err = e.Judge.ExplainChange(ctx, was.subject(o.Namespace), change); err == nil {
			o.take(x)
			return nil
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	o.unsure(err)
	return nil
}

// unsure says why a change can't be judged. One for which Cluster API asks nobody replaces the machines.
func (o *Owner) unsure(err error) {
	if errors.Is(err, rollout.ErrBootstrap) {
		o.replaceUnasked(CauseBootstrap)
		o.Adds = append(o.Adds, "asks nobody where machines come to have a bootstrap config, or have none any more: it replaces them")
		return
	}
	o.unknown(err.Error())
}

// take takes over what was decided.
func (o *Owner) take(x *handlers.Explanation) {
	o.Verdict, o.Disruption, o.Fields, o.class = Verdict(x.Verdict), x.Disruption, x.Fields, x.Class
	if o.Verdict == InPlace {
		o.Actions = x.Actions
	}
}

func (s *side) subject(namespace string) inplace.Subject {
	return inplace.Subject{Namespace: namespace, Cluster: s.cluster, Labels: s.labels, Bootstrap: s.bootstrap, Version: s.version}
}

// settle adds what Cluster API makes of a verdict, how many machines it concerns, and when.
func (e *Explainer) settle(ctx context.Context, o *Owner, key Key, was, will *side) error {
	e.rollAfter(o, was, will)
	o.count(was, will, e.Populated)
	o.scale(was, will)
	if will.paused {
		o.Adds = append(o.Adds, "it is paused: nothing happens before that ends")
	}
	if o.Verdict != InPlace && o.Verdict != Replace || o.unasked {
		return nil // where nobody is asked no policy holds anything back
	}
	return e.when(ctx, o, key, was)
}

// when asks the timetable.
func (e *Explainer) when(ctx context.Context, o *Owner, key Key, was *side) error {
	if e.Timetable == nil {
		return nil
	}
	w, err := e.Timetable.When(ctx, Question{
		Subject: was.subject(o.Namespace), Class: o.class, Material: o.Disruption != disruption.None, Replaces: o.Verdict == Replace,
	})
	if err != nil {
		return fmt.Errorf("ask when changes of %s may start: %w", key, err)
	}
	o.setWhen(w)
	return nil
}

func (o *Owner) setWhen(w *When) {
	if w == nil {
		return
	}
	o.When = w
	if n := o.Machines.InPlace + o.Machines.Replaced; w.Expected > 0 && n > 0 && o.AtOnce > 0 {
		w.AtLeast = w.Expected * Duration((n+o.AtOnce-1)/o.AtOnce)
	}
	if o.Verdict == Replace && len(w.ForbiddenBy) > 0 && !o.unasked {
		o.Verdict, o.Disruption = Forbidden, disruption.None
		o.Machines.Replaced, o.AtOnce, w.AtLeast = 0, 0, 0
		o.Notes = append(o.Notes, "the replacement is forbidden by "+strings.Join(w.ForbiddenBy, ", ")+": the machines stay as they are, and nothing of the change is made")
	}
}
