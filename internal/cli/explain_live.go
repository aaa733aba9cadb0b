package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/bootimage"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/explain"
	"github.com/capi-refit/refit/internal/explain/live"
	"github.com/capi-refit/refit/internal/judges"
	"github.com/capi-refit/refit/internal/kubernetessource"
	"github.com/capi-refit/refit/internal/nodedisruption"
	"github.com/capi-refit/refit/internal/registered"
	"github.com/capi-refit/refit/internal/rollback"
	"github.com/capi-refit/refit/updaters"
)

// liveExplainer explains by what a management cluster has.
type liveExplainer struct {
	*explain.Explainer
	client  client.Client
	cluster *live.Cluster
	// by has the policies of the management cluster.
	by judges.ByPolicy
	// note is what is not known of the server; empty if all is.
	note string
}

// live reads the policies of the management cluster.
func (f *explainFlags) live(ctx context.Context, others ...updaters.Constructor) (*liveExplainer, error) {
	now, err := parseNow(f.now)
	if err != nil {
		return nil, err
	}
	c, err := f.client()
	if err != nil {
		return nil, err
	}
	server, err := f.asServed(ctx, c)
	if err != nil {
		return nil, err
	}
	rules, err := f.rules.Rules()
	if err != nil {
		return nil, err
	}
	by := judges.ByPolicy{
		Disruptions: nodedisruption.NewPolicies(c, rules, judges.List(others...)), Sources: kubernetessource.New(c), Images: bootimage.NewPolicies(c),
	}
	windows, err := readLive(ctx, c, now)
	if err := errors.Join(err, by.Disruptions.Prime(ctx), by.Sources.Prime(ctx), by.Images.Prime(ctx)); err != nil {
		return nil, fmt.Errorf("read the policies: %w", err)
	}
	judge := handlers.NewEngine(by)
	if !server.alone {
		judge = judge.With(&registered.Registry{Client: c, Live: c})
	}
	return &liveExplainer{
		Explainer: &explain.Explainer{Judge: judge, Timetable: &liveTimetable{windows}, Now: now},
		client:    c,
		by:        by,
		note:      server.note,
		cluster:   &live.Cluster{Client: c, Writer: c, Differences: &rollback.Rollback{Writer: c, Live: c}},
	}, nil
}

// notes returns what a reader of a forecast has to know of how it was made.
func (e *liveExplainer) notes() []string {
	if e.note == "" {
		return nil
	}
	return []string{e.note}
}

// explainLive explains what waits at an object of the management cluster.
func (f *explainFlags) explainLive(cmd *cobra.Command, arg string, others ...updaters.Constructor) error {
	kind, name, ok := strings.Cut(arg, "/")
	if !ok || name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("%q is to be KIND/NAME, such as machinedeployment/workers", arg)
	}
	scope, err := f.scopeOrDefault(false)
	if err != nil {
		return err
	}
	e, err := f.live(cmd.Context(), others...)
	if err != nil {
		return err
	}
	owners, err := e.cluster.Owners(cmd.Context(), kind, scope.Namespace, name)
	if err != nil {
		return err
	}
	forecast := explain.NewForecast()
	forecast.Notes = append(forecast.Notes, e.notes()...)
	for _, one := range owners {
		o, err := e.pending(cmd.Context(), one)
		if err != nil {
			return err
		}
		forecast.Owners = append(forecast.Owners, o)
	}
	if strings.HasPrefix(strings.ToLower(kind), "cl") {
		if err := e.waitsAt(cmd.Context(), forecast, scope.Namespace, name); err != nil {
			return err
		}
	}
	forecast.Finish()
	return f.show(cmd, forecast)
}

// pending says what waits at an owner, with what refit's server estimates.
func (e *liveExplainer) pending(ctx context.Context, owner *unstructured.Unstructured) (*explain.Owner, error) {
	cluster := explain.ClusterOf(owner)
	lots, err := e.cluster.Lots(ctx, owner, cluster)
	if err != nil {
		return nil, err
	}
	o, err := e.Pending(ctx, owner, lots)
	if err != nil {
		return nil, err
	}
	change, err := e.change(ctx, owner.GetNamespace(), cluster, owner.GetKind(), owner.GetName())
	if change == nil || err != nil {
		return o, err
	}
	if change.Status.LastDone != nil {
		o.Estimate(change.Status.LastDone.Time)
	}
	// It may know more: it asks registered updaters about what waits.
	for _, c := range change.Status.Claims {
		o.Claim(c.Object, c.Field, c.Registration)
	}
	if c := meta.FindStatusCondition(change.Status.Conditions, refitv1.ChangePendingCondition); c != nil && o.Verdict == explain.Unknown {
		o.Notes = append(o.Notes, "refit's server says of what waits: "+c.Message)
	}
	return o, nil
}

// change returns what refit's server has found that waits at an owner; nil if that is nothing.
func (e *liveExplainer) change(ctx context.Context, namespace, cluster, kind, name string) (*refitv1.PendingChange, error) {
	var list refitv1.PendingChangeList
	if err := e.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list the PendingChanges of namespace %s: %w", namespace, err)
	}
	for i := range list.Items {
		if s := list.Items[i].Spec; s.Cluster == cluster && s.Owner.Kind == kind && s.Owner.Name == name {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// waitsAt adds what waits at the Cluster itself: an upgrade that Cluster API has not asked of its owners yet.
func (e *liveExplainer) waitsAt(ctx context.Context, f *explain.Forecast, namespace, name string) error {
	if err := e.stale(ctx, f, namespace, name); err != nil {
		return err
	}
	change, err := e.change(ctx, namespace, name, "Cluster", name)
	if change == nil || err != nil {
		return err
	}
	for _, c := range change.Status.Causes {
		if c.Cause == refitv1.PendingUpgrade {
			f.Notes = append(f.Notes, fmt.Sprintf("the Cluster's topology wants another version, for which %d machines wait that Cluster API has not asked anybody about: refit pending -n %s -o wide shows them", c.Machines, namespace))
		}
	}
	if done := change.Status.LastDone; done != nil {
		f.Notes = append(f.Notes, "all of the Cluster would be done at about "+done.UTC().Format(time.RFC3339))
	}
	return nil
}

// liveTimetable says when changes may start by the policies of a management cluster, with their overrides.
type liveTimetable struct{ policies *livePolicies }

// When implements explain.Timetable. It knows of Machines.
func (t *liveTimetable) When(ctx context.Context, q explain.Question) (*explain.When, error) {
	if q.Machine == nil {
		return nil, nil
	}
	candidate, selecting, err := t.policies.selecting(ctx, q.Machine)
	if err != nil {
		return nil, err
	}
	change := changemanagement.Change{Class: q.Class}
	mu, err := t.policies.change(ctx, q.Machine)
	if err != nil {
		return nil, err
	}
	change.Digest, change.Permit = mu.Digest, mu.Permit
	d := changemanagement.Decide(t.policies.now, candidate, selecting, change)
	w := &explain.When{Policies: []string{}}
	for _, p := range selecting {
		w.Policies = append(w.Policies, p.Title())
		if !q.Replaces { // it says how long updates take
			w.Expected = max(w.Expected, explain.Duration(p.Schedule.ExpectedDuration()))
		}
	}
	if q.Replaces {
		w.ForbiddenBy = forbiddenBy(selecting)
	}
	if !q.Material && !d.HoldsAll() {
		w.Reason, w.NotBefore = refitv1.NotMaterial, &t.policies.now
		return w, nil
	}
	_, refused, err := t.policies.gates(ctx, candidate, selecting)
	if err != nil {
		return nil, err
	}
	if refused != "" {
		w.Reason = "InvalidPolicy"
		return w, nil
	}
	setWhen(w, t.policies.now, d.Decision)
	return w, nil
}

const diffExample = `  # What becomes of which machines when these files are applied?
  refit diff -f new.yaml

  # All of a directory; exits with 2 if a machine would be replaced
  refit diff -f clusters/prod/ --fail-on=Replace`

func newDiffCommand(others ...updaters.Constructor) *cobra.Command {
	return (&explainFlags{}).diffCommand(others...)
}

func (f *explainFlags) diffCommand(others ...updaters.Constructor) *cobra.Command {
	var manager string
	cmd := &cobra.Command{
		Use:   "diff -f FILE",
		Short: "Say what becomes of the machines of a management cluster when files are applied",
		Long: `Says what refit explain --from --to says, of the objects of the management cluster as they are, and as they would be when the files
are applied: with the API server's defaults and webhooks, by a dry run of server-side apply. Nothing is written. The policies
that are there count, and each machine is told.

What files no longer have goes only if the field manager has applied it before, as with kubectl apply --server-side. The dry run
takes the right to patch, and create, what is in the files. Objects that say nothing about machines are left out, and named.`,
		Example: diffExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(f.checkOutput(), checkFiles(f.from...)); err != nil {
				return err
			}
			return f.diff(cmd, manager, others...)
		},
	}
	fs := cmd.Flags()
	fs.StringArrayVarP(&f.from, "filename", "f", nil, "File or directory with objects as they will be, in JSON or YAML; - for standard input. Can be there more than once.")
	fs.StringVar(&manager, "field-manager", "kubectl", "Name by which the files are applied, as kubectl apply --server-side has it.")
	f.addLive(cmd)
	_ = cmd.MarkFlagRequired("filename") // the flag is there
	return cmd
}

func (f *explainFlags) diff(cmd *cobra.Command, manager string, others ...updaters.Constructor) error {
	scope, err := f.scopeOrDefault(false)
	if err != nil {
		return err
	}
	files, err := readSet(cmd.InOrStdin(), scope.Namespace, f.from)
	if err != nil {
		return err
	}
	e, err := f.live(cmd.Context(), others...)
	if err != nil {
		return err
	}
	e.cluster.FieldManager = manager
	from, to, err := e.cluster.Diff(cmd.Context(), files)
	if err != nil {
		return err
	}
	forecast, err := e.Compare(cmd.Context(), from, to)
	if err != nil {
		return err
	}
	forecast.Notes = append(forecast.Notes, e.notes()...)
	if note := files.LeftOut(); note != "" {
		forecast.Notes = append(forecast.Notes, note)
	}
	for _, o := range forecast.Owners {
		if err := e.each(cmd.Context(), o); err != nil {
			return err
		}
	}
	forecast.Finish()
	return f.show(cmd, forecast)
}

// each finds out what becomes of each Machine of an owner, if it has some of which something becomes.
func (e *liveExplainer) each(ctx context.Context, o *explain.Owner) error {
	machines, err := e.cluster.Machines(ctx, o)
	if err != nil || o.Verdict == explain.None || o.Verdict == explain.New {
		return err
	}
	return e.Machines(ctx, o, machines)
}

var _ explain.Timetable = (*liveTimetable)(nil)
