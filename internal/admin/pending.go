package admin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/printer"
)

// Pending shows what waits.
type Pending struct {
	Client client.Reader
	Out    io.Writer
	Scope  Scope
	// Format is one of the printer's: a table, wide with the Machines as well, JSON, YAML or names.
	Format string
}

// Show shows what waits now, as refit last found it.
func (p *Pending) Show(ctx context.Context) error {
	var list refitv1.PendingChangeList
	if err := p.Client.List(ctx, &list, p.Scope.options()...); err != nil {
		return fmt.Errorf("list PendingChanges in %s: %w", p.Scope, err)
	}
	slices.SortFunc(list.Items, func(a, b refitv1.PendingChange) int {
		return cmp.Or(
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Spec.Cluster, b.Spec.Cluster), cmp.Compare(a.Spec.Role, b.Spec.Role), // a Cluster has no role, and is first
			cmp.Compare(a.Spec.Owner.Kind, b.Spec.Owner.Kind), cmp.Compare(a.Spec.Owner.Name, b.Spec.Owner.Name),
		)
	})
	if printed, err := printObjects(p.Out, p.Format, "PendingChange", "pendingchange", list.Items); printed {
		return err
	}
	return p.table(list.Items)
}

// table writes a line for each owner and each Cluster at which something waits; with wide, one for each Machine below its owner.
func (p *Pending) table(all []refitv1.PendingChange) error {
	if len(all) == 0 {
		return say(p.Out, "nothing waits in %s\n", p.Scope.String())
	}
	rows := printer.Rows{{"NAMESPACE", "OWNER", "CAUSE", "MACHINES", "EARLIEST", "LAST DONE", "REASON"}}
	for i := range all {
		rows = append(rows, p.rows(&all[i])...)
	}
	for n, cells := range rows {
		for i, c := range cells {
			cells[i] = oneLine(c)
		}
		if p.Scope.Namespace != "" {
			rows[n] = cells[1:]
		}
	}
	width := printer.Width(p.Out)
	if p.Format == printer.Wide {
		width = 0
	}
	_, err := io.WriteString(p.Out, rows.Text("", width))
	return err
}

// rows are the cells of a PendingChange. The Machines of a Cluster are those of its owners.
func (p *Pending) rows(c *refitv1.PendingChange) [][]string {
	st := &c.Status
	out := [][]string{{c.Namespace, c.Spec.Owner.Kind + "/" + c.Spec.Owner.Name, causesOf(c), fmt.Sprint(st.Machines), at(st.EarliestStart), at(st.LastDone), why(c)}}
	if p.Format != printer.Wide || c.Spec.Role == "" {
		return out
	}
	for _, m := range st.List {
		out = append(out, []string{"", "- Machine/" + m.Name, string(m.Cause), "", at(m.EarliestStart), "", m.Reason})
	}
	if st.More > 0 {
		out = append(out, []string{"", fmt.Sprintf("- and %d more", st.More), "", "", "", "", ""})
	}
	return out
}

// causesOf names what becomes of the Machines.
func causesOf(c *refitv1.PendingChange) string {
	all := make([]string, len(c.Status.Causes))
	for i, of := range c.Status.Causes {
		all[i] = string(of.Cause)
	}
	return strings.Join(all, ",")
}

// why tells what a change waits for.
func why(c *refitv1.PendingChange) string {
	if condition := apimeta.FindStatusCondition(c.Status.Conditions, refitv1.ChangePendingCondition); condition != nil {
		return condition.Message
	}
	return ""
}

// at writes an instant, or a dash for one that nobody knows.
func at(t *metav1.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
