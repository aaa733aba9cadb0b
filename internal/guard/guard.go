package guard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/explain"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines;clusters;machinedeployments,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinesets;clusterclasses,verbs=get
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get

// patience is how long an edit is looked at. The webhook waits longer, so that what could not be told in time is said.
const patience = 4 * time.Second

// Guard answers an API server's reviews of edits. It reads, and writes nothing.
type Guard struct {
	// Cached has Machines, Clusters, and the metadata of what owns Machines; Live has templates, and reads from the API server.
	Cached, Live client.Reader
	// Hooks decide about replacements: what they hold back is what an edit is refused for.
	Hooks *changemanagement.Hooks
	// Judge decides which changes are made in place, as the hooks do.
	Judge   explain.Judge
	Clock   clock.PassiveClock
	Metrics *Metrics
	// Namespace is the only one that refit looks after; empty: all.
	Namespace string
	// Controller is the user by whose name Cluster API writes what it makes of a topology. That is never refused, since the Cluster would be stuck.
	Controller string
}

var _ admission.Handler = (*Guard)(nil)

// Handle implements admission.Handler. A dry run is answered in the same way, and not counted.
func (g *Guard) Handle(ctx context.Context, r admission.Request) admission.Response {
	switch {
	case g.Namespace != "" && r.Namespace != g.Namespace || r.SubResource != "":
		return admission.Allowed("")
	case asksAboutHealthCheck(r):
		return g.healthCheck(ctx, r)
	case r.Operation != admissionv1.Update:
		return admission.Allowed("")
	}
	return g.edited(ctx, r)
}

// edited answers about the edit of an object that owns machines.
func (g *Guard) edited(ctx context.Context, r admission.Request) admission.Response {
	e, err := read(r)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	e.advice = e.advice || g.Controller != "" && r.UserInfo.Username == g.Controller && ofTopology(e.old)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	v, err := safely(ctx, e.title(), func() (*verdict, error) { return g.judge(ctx, e) })
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Could not tell what an edit makes of machines", "kind", r.Kind.Kind, "object", r.Namespace+"/"+r.Name, "reason", err.Error())
		v = &verdict{outcome: unjudged, warnings: []string{"refit's guard could not tell whether this edit replaces machines, and lets it be stored: " + unread(err)}}
	}
	if !e.dryRun {
		g.Metrics.count(e.new.GetKind(), v)
	}
	return g.answer(ctx, e, v)
}

// Unread has an edit of which refit does not read the review be stored, with a warning. It counts as unjudged, of no kind.
func (g *Guard) Unread(why string) admission.Response {
	v := &verdict{outcome: unjudged, warnings: []string{"refit's guard could not tell whether this edit replaces machines, and lets it be stored: " + why}}
	g.Metrics.count("", v)
	response := admission.Allowed("").WithWarnings(v.warnings...)
	response.AuditAnnotations = map[string]string{"outcome": string(v.outcome)}
	return response
}

// answer returns the response for a verdict. What it came to is in the API server's audit log.
func (g *Guard) answer(ctx context.Context, e *edit, v *verdict) admission.Response {
	if v.outcome == refused || v.outcome == bypassed {
		ctrl.LoggerFrom(ctx).Info("An edit that would replace machines", "object", e.title(), "user", e.user, "outcome", v.outcome, "dryRun", e.dryRun, "digest", v.digest, "why", v.refusal)
	}
	response := admission.Allowed("")
	if v.outcome == refused {
		response = admission.Denied(v.refusal)
	}
	if v.outcome != passed {
		response.AuditAnnotations = map[string]string{"outcome": string(v.outcome)}
	}
	if v.digest != "" {
		response.AuditAnnotations["digest"] = v.digest
	}
	return response.WithWarnings(v.warnings...)
}

// safely has a fault of refit's own be an error: an answer that it can't give must be no refusal.
func safely[T any](ctx context.Context, object string, tell func() (T, error)) (out T, err error) {
	defer func() {
		if p := recover(); p != nil {
			ctrl.LoggerFrom(ctx).Error(fmt.Errorf("panic: %v", p), "A fault of refit's guard; please report it", "object", object, "stack", string(debug.Stack()))
			err = errors.New("it has a fault, which is in refit's log")
		}
	}()
	return tell()
}

// judge says what becomes of an edit.
func (g *Guard) judge(ctx context.Context, e *edit) (*verdict, error) { //nolint:cyclop // one reason to end early after the other
	v := &verdict{outcome: passed}
	if e.deleted() || e.scales() {
		return v, nil
	}
	if some, err := g.Hooks.Policies.Any(e.new.GetNamespace()); err != nil || !some {
		return v, err
	}
	if quiet, err := e.quiet(ctx); err == nil && quiet { // what can't be compared is told by who explains
		return v, nil
	}
	if known, err := g.known(ctx, e.old); err != nil || !known {
		return v, err
	}
	parts, err := g.parts(ctx, e)
	if err != nil {
		return nil, err
	}
	var all []*finding
	var lost error
	for _, p := range parts {
		some, err := g.findings(ctx, p)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		lost = errors.Join(lost, err) // what is sure of other parts is told
		all = append(all, some...)
		v.unasked = append(v.unasked, p.causes()...)
	}
	if err := v.take(e, all); err != nil {
		return nil, err
	}
	if v.outcome != refused && lost != nil {
		return nil, lost
	}
	return v, nil
}

// ofTopology reports whether Cluster API makes an object out of a Cluster's topology.
func ofTopology(o client.Object) bool {
	_, yes := o.GetLabels()[clusterv1.ClusterTopologyOwnedLabel]
	return yes
}

// unread leaves of an error what people can use: values of fields are in none of these.
func unread(err error) string {
	text := err.Error()
	if strings.Contains(text, context.DeadlineExceeded.Error()) {
		return "it took too long"
	}
	return text
}
