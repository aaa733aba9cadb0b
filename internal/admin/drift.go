package admin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/printer"
)

// driftLookEvery is how often it is looked whether a comparison was made.
const driftLookEvery = time.Second

// Drift shows people how nodes compare with what was applied to them.
type Drift struct {
	Client client.Client
	Clock  clock.Clock
	// Out is for what is shown, Progress for how it goes meanwhile.
	Out, Progress io.Writer
	// Admin is who asks.
	Admin string
	// Format is one of the printer's: text, JSON or YAML.
	Format string
}

// driftView is what is shown for programs.
type driftView struct {
	Namespace string            `json:"namespace"`
	Machine   string            `json:"machine"`
	Condition *metav1.Condition `json:"condition,omitempty"`
	// Drift is as the MachineUpdate has it.
	Drift *refitv1.DriftStatus `json:"drift,omitempty"`
	// Repair is set while the node is brought back.
	Repair *refitv1.RepairStatus `json:"repair,omitempty"`
}

// Show shows what is known of a Machine.
func (d *Drift) Show(ctx context.Context, m *clusterv1.Machine) error {
	mu, err := d.read(ctx, m)
	if err != nil {
		return err
	}
	return d.show(mu)
}

// Now has the node compared, waits at most timeout for that, and shows what was found.
func (d *Drift) Now(ctx context.Context, m *clusterv1.Machine, timeout time.Duration) error {
	mu, err := d.read(ctx, m)
	if err != nil {
		return err
	}
	if err := canCompare(mu, d.Clock.Now()); err != nil {
		return err
	}
	began := d.Clock.Now()
	asked := began.UTC().Format(time.RFC3339Nano) + " " + d.Admin
	if err := d.ask(ctx, mu, asked); err != nil {
		return err
	}
	d.tell("Asked refit to compare the node of Machine %s/%s with what was applied to it. Waiting for that, %s at most.", m.Namespace, m.Name, timeout)
	for {
		if mu, err = d.read(ctx, m); err != nil {
			return err
		}
		if s := mu.Status.Drift; s != nil && s.ObservedCheck == refitv1.Observed(asked) {
			return d.show(mu)
		}
		if err := canCompare(mu, d.Clock.Now()); err != nil {
			return fmt.Errorf("nothing was compared: %w", err)
		}
		if d.Clock.Since(began) >= timeout {
			return fmt.Errorf("the node was not compared within %s; it still will be when refit comes to it: is it running, and does it lead? "+
				"See `refit drift -n %s %s` later", timeout, m.Namespace, m.Name)
		}
		if err := d.sleep(ctx); err != nil {
			return err
		}
	}
}

// canCompare returns an error if the node is not compared now: only one that shows what is asked for can have drifted from it.
func canCompare(mu *refitv1.MachineUpdate, now time.Time) error {
	if r := rowOf(mu, now); r.Phase != string(refitv1.PhaseSucceeded) {
		return fmt.Errorf("the node of Machine %s/%s is compared when its update has succeeded, and that is %s%s", mu.Namespace, mu.Name, r.Phase, inBrackets(r.Reason))
	}
	return nil
}

func (d *Drift) read(ctx context.Context, m *clusterv1.Machine) (*refitv1.MachineUpdate, error) {
	key := client.ObjectKeyFromObject(m)
	var mu refitv1.MachineUpdate
	switch err := d.Client.Get(ctx, key, &mu); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("nothing was applied to Machine %s by refit, so nothing can have drifted: it was never asked to update it", key)
	case err != nil:
		return nil, fmt.Errorf("read MachineUpdate %s: %w", key, err)
	}
	if !metav1.IsControlledBy(&mu, m) {
		return nil, fmt.Errorf("MachineUpdate %s is of an earlier Machine of the same name, and about to go", key)
	}
	return &mu, nil
}

func (d *Drift) ask(ctx context.Context, mu *refitv1.MachineUpdate, value string) error {
	changed := mu.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, refitv1.CheckDriftAnnotation, value)
	if err := d.Client.Patch(ctx, changed, client.MergeFrom(mu), client.FieldOwner(d.Admin)); err != nil {
		return fmt.Errorf("annotate MachineUpdate %s/%s: %w", mu.Namespace, mu.Name, err)
	}
	return nil
}

func (d *Drift) sleep(ctx context.Context) error {
	timer := d.Clock.NewTimer(driftLookEvery)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}

func (d *Drift) tell(format string, args ...any) {
	say(d.Progress, format+"\n", args...) //nolint:errcheck // it is for people
}

// show writes what a MachineUpdate says of drift.
func (d *Drift) show(mu *refitv1.MachineUpdate) error {
	v := driftView{
		Namespace: mu.Namespace, Machine: mu.Name, Drift: mu.Status.Drift, Repair: mu.Status.Repair,
		Condition: meta.FindStatusCondition(mu.Status.Conditions, refitv1.DriftedCondition),
	}
	if printed, err := printer.Print(d.Out, d.Format, v); printed {
		return err
	}
	var text strings.Builder
	v.write(&text, d.Clock.Now(), printer.Width(d.Out))
	_, err := io.WriteString(d.Out, text.String())
	return err
}

// write writes what people read, in lines of a width.
func (v *driftView) write(w *strings.Builder, now time.Time, width int) {
	w.WriteString(printer.Fold(v.verdict(now), width))
	if v.Condition == nil || v.Drift == nil || len(v.Drift.Resources) == 0 {
		return
	}
	w.WriteString("\n")
	if v.Condition.Status == metav1.ConditionUnknown {
		w.WriteString(printer.Fold(fmt.Sprintf("When it was compared last%s, it had:\n\n", asOf(v.Drift.ComparedAt, now)), width))
	}
	rows := printer.Rows{{"KIND", "NAME", "DIFFERS"}}
	for _, r := range v.Drift.Resources {
		rows.Add(oneLine(r.Kind), cmp.Or(oneLine(r.Name), "-"), oneLine(strings.Join(r.What, ", ")))
	}
	w.WriteString(rows.Text("", width))
	if more := int(v.Drift.Total) - len(v.Drift.Resources); more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
}

// verdict says whether the node has drifted.
func (v *driftView) verdict(now time.Time) string {
	name := fmt.Sprintf("%s/%s", v.Namespace, v.Machine)
	if v.Condition == nil {
		return fmt.Sprintf("The node of Machine %s was not compared yet. To have it compared: refit drift --now -n %s %s\n", name, v.Namespace, v.Machine)
	}
	var checked, compared *metav1.Time
	if v.Drift != nil {
		checked, compared = v.Drift.CheckedAt, v.Drift.ComparedAt
	}
	text := ""
	switch v.Condition.Status {
	case metav1.ConditionTrue:
		text = fmt.Sprintf("Machine %s has drifted%s.\n", name, asOf(compared, now))
	case metav1.ConditionFalse:
		text = fmt.Sprintf("Machine %s has not drifted%s.\n", name, asOf(compared, now))
	default:
		text = fmt.Sprintf("Whether Machine %s has drifted is not known%s.\n", name, asOf(checked, now))
	}
	return text + fmt.Sprintf("%s: %s\n", oneLine(v.Condition.Reason), oneLine(v.Condition.Message))
}

// asOf says when something was so.
func asOf(t *metav1.Time, now time.Time) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf(", as of %s (%s ago)", t.UTC().Format(time.RFC3339), duration.HumanDuration(max(now.Sub(t.Time), 0)))
}
