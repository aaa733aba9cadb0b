package admin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/printer"
)

// Status shows how updates stand.
type Status struct {
	Client client.WithWatch
	Clock  clock.WithTicker
	Out    io.Writer
	// Size returns how many characters a line of the terminal has and how many lines there are, and zeros when Out is none.
	Size func() (width, height int)

	Scope Scope
	// Format is one of the printer's: a table, wide without a bound for its lines, JSON, YAML or names. Empty: a table.
	Format string
	// Machines are the names of those that are shown, or of their nodes. None: all in Scope.
	Machines []string
	// named are the Machines that these names mean, and the name of each as it was given.
	named map[types.NamespacedName]string
}

const (
	// redrawEvery is how often ages are drawn again.
	redrawEvery = 5 * time.Second
	// askAgain is how long to wait when the API server does not answer, or has ended the watch.
	askAgain = 2 * time.Second
)

// Show shows how updates stand now. That there is none for a Machine that was named is an error, after the others are shown.
func (s *Status) Show(ctx context.Context) error {
	s.named = nil
	updates, _, err := s.list(ctx)
	if err != nil {
		return err
	}
	if err := s.print(updates); err != nil {
		return err
	}
	if missing := s.missing(updates); len(missing) > 0 {
		return fmt.Errorf("there is no update in %s of %s: refit was not asked to update it", s.Scope, strings.Join(missing, ", "))
	}
	return nil
}

// print writes the updates in the format that is asked for.
func (s *Status) print(updates []refitv1.MachineUpdate) error {
	slices.SortFunc(updates, func(a, b refitv1.MachineUpdate) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if printed, err := printObjects(s.Out, s.Format, "MachineUpdate", "machineupdate", updates); printed {
		return err
	}
	width, _ := s.Size()
	if s.Format == printer.Wide {
		width = 0
	}
	_, err := io.WriteString(s.Out, s.page(updates, width, 0))
	return err
}

// missing returns the names of Machines that were named and have no update.
func (s *Status) missing(updates []refitv1.MachineUpdate) []string {
	var names []string
	for key, name := range s.named {
		if !slices.ContainsFunc(updates, func(mu refitv1.MachineUpdate) bool { return client.ObjectKeyFromObject(&mu) == key }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// page returns a table and a summary of at most height lines, or without a bound if it is 0. What needs a person is at the top.
func (s *Status) page(updates []refitv1.MachineUpdate, width, height int) string {
	rows := rowsOf(updates, s.Clock.Now())
	summary := summaryOf(rows) + "\n"
	if len(rows) == 0 {
		return summary
	}
	if room := max(height-around, 1); height > 0 && len(rows) > room {
		summary = fmt.Sprintf("(%d more)\n%s", len(rows)-room, summary)
		rows = rows[:room]
	}
	if s.Scope.Namespace != "" {
		for i := range rows {
			rows[i].Namespace = ""
		}
	}
	if width == 0 || height == 0 {
		return table(rows, width) + "\n" + printer.Fold(summary, width)
	}
	return fit(table(rows, 0)+"\n"+summary, width, height) // a row is a line
}

// fit cuts lines that a terminal would wrap, and those at the end that would have it scroll what has failed away.
func fit(page string, width, height int) string {
	lines := strings.Split(strings.TrimSuffix(page, "\n"), "\n")
	lines = lines[:min(len(lines), max(height-1, 1))]
	for i, line := range lines {
		lines[i] = cut(line, width)
	}
	return strings.Join(lines, "\n") + "\n"
}

// around is the number of lines of a page that are no rows, and of one for the cursor.
const around = 5

// list returns the updates, and the version from which on to watch.
func (s *Status) list(ctx context.Context) ([]refitv1.MachineUpdate, string, error) {
	var list refitv1.MachineUpdateList
	if err := s.Client.List(ctx, &list, s.Scope.options()...); err != nil {
		return nil, "", fmt.Errorf("list MachineUpdates in %s: %w", s.Scope, err)
	}
	if len(list.Items) == 0 {
		if err := s.checkScope(ctx); err != nil {
			return nil, "", err
		}
	}
	if s.named == nil {
		if err := s.findNamed(ctx, list.Items); err != nil {
			return nil, "", err
		}
	}
	return slices.DeleteFunc(list.Items, func(mu refitv1.MachineUpdate) bool { return !s.wanted(&mu) }), list.ResourceVersion, nil
}

func (s *Status) wanted(mu *refitv1.MachineUpdate) bool {
	_, named := s.named[client.ObjectKeyFromObject(mu)]
	return len(s.Machines) == 0 || named
}

// Watch shows how updates stand until ctx ends: on a terminal it draws again, elsewhere it writes a line for each change. Only a
// first answer that is missing is an error; from then on Watch asks again.
func (s *Status) Watch(ctx context.Context) error {
	s.named = nil
	v := &view{Status: s}
	for {
		err := v.session(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !v.shown:
			return err
		case err != nil:
			v.tell("asking again: " + oneLine(err.Error()))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.Clock.After(askAgain):
		}
	}
}

// view is what was shown last.
type view struct {
	*Status
	updates map[types.NamespacedName]refitv1.MachineUpdate
	lines   map[types.NamespacedName]string
	// shown reports whether there has been something to show.
	shown bool
}

// session lists, watches, and returns when the watch ends.
func (v *view) session(ctx context.Context) error {
	updates, version, err := v.list(ctx)
	if err != nil {
		return err
	}
	v.updates = map[types.NamespacedName]refitv1.MachineUpdate{}
	for i := range updates {
		v.updates[client.ObjectKeyFromObject(&updates[i])] = updates[i]
	}
	opts := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}}
	w, err := v.Client.Watch(ctx, &refitv1.MachineUpdateList{}, append(v.Scope.options(), opts)...)
	if err != nil {
		return fmt.Errorf("watch MachineUpdates in %s: %w", v.Scope, err)
	}
	defer w.Stop()
	ticker := v.Clock.NewTicker(redrawEvery)
	defer ticker.Stop()
	if missing := v.missing(updates); !v.shown && len(missing) > 0 {
		v.wait(missing)
	}
	for v.show(); v.next(ctx, w, ticker.C()); v.show() {
	}
	return nil
}

// next waits for what is to be shown. It returns false when the watch has ended.
func (v *view) next(ctx context.Context, w watch.Interface, tick <-chan time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-tick:
	case e, ok := <-w.ResultChan():
		if !ok || e.Type == watch.Error {
			return false // too old, or the server ends: begin again
		}
		v.take(e)
	}
	return true
}

func (v *view) take(e watch.Event) {
	mu, ok := e.Object.(*refitv1.MachineUpdate)
	if !ok || !v.wanted(mu) {
		return
	}
	key := client.ObjectKeyFromObject(mu)
	if e.Type == watch.Deleted {
		delete(v.updates, key)
		return
	}
	v.updates[key] = *mu
}

// show draws a page, or writes what has changed.
func (v *view) show() {
	v.shown = true
	updates := slices.Collect(maps.Values(v.updates))
	if width, height := v.Size(); width > 0 {
		// To the upper left, each line cleared to its end, and what is below as well.
		page := strings.ReplaceAll(v.page(updates, width, height), "\n", "\x1b[K\n")
		fmt.Fprint(v.Out, "\x1b[H"+page+"\x1b[J") //nolint:errcheck // it is drawn again
		return
	}
	lines := map[types.NamespacedName]string{}
	for _, r := range rowsOf(updates, v.Clock.Now()) {
		key := types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
		lines[key] = r.line()
		if v.lines[key] != lines[key] {
			v.tell(lines[key])
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(v.lines), func(a, b types.NamespacedName) int {
		return strings.Compare(a.String(), b.String())
	}) {
		if _, ok := lines[key]; !ok {
			v.tell(key.String() + " is gone")
		}
	}
	v.lines = lines
}

// wait says which Machines have no update yet, where a page would not be drawn over it.
func (v *view) wait(missing []string) {
	if width, _ := v.Size(); width == 0 {
		v.tell("no update yet of " + strings.Join(missing, ", "))
	}
}

func (v *view) tell(what string) {
	say(v.Out, "%s %s\n", v.Clock.Now().UTC().Format(time.RFC3339), what) //nolint:errcheck // it is for people
}
