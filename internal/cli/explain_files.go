package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/explain"
	"github.com/capi-refit/refit/internal/explain/render"
	"github.com/capi-refit/refit/internal/printer"
	"github.com/capi-refit/refit/internal/selection"
	"github.com/capi-refit/refit/schedule"
	"github.com/capi-refit/refit/updaters"
)

// explainFiles explains what becomes of machines when some files become others.
func (f *explainFlags) explainFiles(cmd *cobra.Command, others ...updaters.Constructor) error {
	policies, err := f.disruptions(cmd, others...)
	if err != nil {
		return err
	}
	now, err := parseNow(f.now)
	if err != nil {
		return err
	}
	from, err := readSet(cmd.InOrStdin(), f.namespace, f.from)
	if err != nil {
		return err
	}
	to, err := readSet(cmd.InOrStdin(), f.namespace, f.to)
	if err != nil {
		return err
	}
	e := &explain.Explainer{Judge: handlers.NewEngine(policies), Now: now}
	var windows *fileTimetable
	if len(f.schedules) > 0 {
		all, err := loadPolicies(cmd.InOrStdin(), f.schedules, now, func(s *schedule.Schedule) *schedule.Schedule { return s })
		if err != nil {
			return err
		}
		all.tellGates(cmd.ErrOrStderr())
		windows = &fileTimetable{policies: all, objects: to}
		e.Timetable = windows
	}
	forecast, err := e.Compare(cmd.Context(), from, to)
	if err != nil {
		return err
	}
	forecast.Notes = append(forecast.Notes, eachOnce(policies.notes)...)
	if windows != nil {
		forecast.Notes = append(forecast.Notes, eachOnce(windows.notes)...)
	}
	return f.show(cmd, forecast)
}

// eachOnce returns texts in order, each once.
func eachOnce(texts []string) []string {
	out := slices.Clone(texts)
	slices.Sort(out)
	return slices.Compact(out)
}

// show prints a forecast, and fails if machines see what they are not to.
func (f *explainFlags) show(cmd *cobra.Command, forecast *explain.Forecast) error {
	if err := render.Write(cmd.OutOrStdout(), forecast, f.output.Format, printer.Width(cmd.OutOrStdout())); err != nil {
		return err
	}
	if f.failOn == "" {
		return nil
	}
	var all []string
	for _, o := range forecast.Reaches(disruption.ActionType(f.failOn)) {
		all = append(all, fmt.Sprintf("%s (%s)", o.Title(), o.Verdict))
	}
	if len(all) == 0 {
		return nil
	}
	return &exitStatus{2, fmt.Errorf("--fail-on=%s: %s", f.failOn, strings.Join(all, ", "))}
}

// readSet reads the objects of files and directories. Those that name no namespace are of the one that is given, if one is.
func readSet(stdin io.Reader, namespace string, names []string) (*explain.Set, error) {
	set, err := explain.NewSet()
	if err != nil {
		return nil, err
	}
	found := false
	for _, name := range names {
		files, err := filesOf(name)
		if err != nil {
			return nil, err
		}
		found = found || len(files) > 0
		for _, file := range files {
			data, err := readFile(stdin, file)
			if err != nil {
				return nil, err
			}
			objects, err := explain.Read(data)
			for _, o := range objects {
				err = errors.Join(err, addTo(set, namespace, o))
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	if !found {
		return nil, fmt.Errorf("there is no file with objects (%s) in %s: for nothing, name an empty file", strings.Join(objectFiles, ", "), strings.Join(names, ", "))
	}
	return set, nil
}

func addTo(set *explain.Set, namespace string, o *unstructured.Unstructured) error {
	if o.GetNamespace() == "" && namespace != "" && explain.Relevant(o.GroupVersionKind().GroupKind()) {
		o.SetNamespace(namespace)
	}
	return set.Add(o)
}

// filesOf returns a file, or the files with objects that are in a directory and below it. What is hidden, such as .git, is left out. A directory may be named by
// a link, and what is in it may not be one to a directory: what was left out there would be taken for what is gone.
func filesOf(name string) ([]string, error) {
	info, err := os.Stat(name)
	if name == "-" || err == nil && !info.IsDir() {
		return []string{name}, nil
	}
	if err != nil {
		return nil, err
	}
	root, err := filepath.EvalSymlinks(name)
	if err != nil {
		return nil, err
	}
	return filesBelow(root)
}

// filesBelow returns the files with objects that are in a directory and below it.
func filesBelow(root string) (all []string, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := path != root && strings.HasPrefix(entry.Name(), ".")
		switch {
		case hidden && entry.IsDir():
			return fs.SkipDir
		case hidden:
			return nil
		case isObjectFile(path, entry):
			all = append(all, path)
		}
		return checkLink(path, entry)
	})
	return all, err
}

// checkLink returns an error for a link to a directory, or to nothing.
func checkLink(path string, entry fs.DirEntry) error {
	if entry.Type()&fs.ModeSymlink == 0 {
		return nil
	}
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return fmt.Errorf("%s is a link to a directory, which is not followed: name the directory itself, too", path)
	}
	return err
}

// objectFiles are the ends of the names of files with objects.
var objectFiles = []string{".yaml", ".yml", ".json"}

func isObjectFile(path string, entry fs.DirEntry) bool {
	return !entry.IsDir() && slices.Contains(objectFiles, filepath.Ext(path))
}

// fileTimetable says when changes may start by ChangeManagementPolicies of files.
type fileTimetable struct {
	policies *policies
	// objects have the Clusters, if they are given.
	objects *explain.Set
	notes   []string
}

// When implements explain.Timetable. A policy of which files don't tell whether it selects the machines holds them back, and forbids nothing.
func (t *fileTimetable) When(_ context.Context, q explain.Question) (*explain.When, error) {
	w := &explain.When{Policies: []string{}}
	var asked []*schedule.Schedule
	for _, s := range t.policies.schedules {
		p := t.policies.selectors[s]
		selected, known := t.selects(p, q)
		if !selected {
			continue
		}
		if !known {
			t.notes = append(t.notes, fmt.Sprintf("policy %s is taken to select Cluster %s, whose labels, or those of its namespace, are not known here", s.Name(), q.Cluster))
		}
		switch {
		case !q.Replaces: // it says how long updates take
			w.Expected = max(w.Expected, explain.Duration(s.ExpectedDuration()))
		case p.Forbid && known:
			w.ForbiddenBy = append(w.ForbiddenBy, "policy "+s.Name())
		case p.Forbid:
			t.notes = append(t.notes, fmt.Sprintf("machines of Cluster %s are replaced unless policy %s selects the Cluster, which would forbid it", q.Cluster, s.Name()))
		}
		if q.Material || p.HoldAll {
			asked, w.Policies = append(asked, s.For(q.Class)), append(w.Policies, s.Name())
		}
	}
	setWhen(w, t.policies.now, schedule.Decide(schedule.Query{Now: t.policies.now}, asked...))
	return w, nil
}

// selects reports whether a policy selects a machine, or may do so, and whether files tell that for certain.
func (t *fileTimetable) selects(p *changemanagement.Policy, q explain.Question) (selected, known bool) {
	here := p.Namespace == "" || q.Namespace == "" || p.Namespace == q.Namespace
	if !here || !p.Selector.Machine(selection.RoleOf(q.Labels), q.Labels) {
		return false, true
	}
	known = q.Labels != nil && (p.Namespace == "" || q.Namespace != "") && (p.Namespaces == nil || p.Namespaces.Empty())
	if p.Selector.AnyCluster() {
		return true, known
	}
	cluster := t.objects.Get(explain.Key{GroupKind: clusterv1.GroupVersion.WithKind("Cluster").GroupKind(), Namespace: q.Namespace, Name: q.Cluster})
	if cluster == nil {
		return true, false
	}
	return p.Selector.Cluster(cluster.GetLabels()), known
}

// setWhen takes over what policies have decided.
func setWhen(w *explain.When, now time.Time, d schedule.Decision) {
	w.Reason = string(d.Reason)
	switch eta := time.Duration(d.NextChangeETASeconds) * time.Second; {
	case d.Open:
		w.NotBefore = &now
	case eta > 0:
		w.NotBefore = new(now.Add(eta).UTC().Truncate(time.Second))
	}
}

// forbiddenBy names the policies that forbid a replacement.
func forbiddenBy(all []*changemanagement.Policy) (out []string) {
	for _, p := range all {
		if p.Forbid {
			out = append(out, p.Title())
		}
	}
	return out
}
