package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/explain/render"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/judges"
	"github.com/capi-refit/refit/internal/printer"
	"github.com/capi-refit/refit/updaters"
)

const explainExample = `  # What becomes of which machines when one directory becomes the other?
  refit explain --from before/ --to after/

  # The same as a comment for a pull request; exits with 2 if a machine would reboot, or be replaced
  refit explain --from before/ --to after/ -o markdown --fail-on=Reboot

  # With the policies of files: what a change takes, and when it may start
  refit explain --from before/ --to after/ --policy policies.yaml --schedule windows.yaml

  # What waits at a MachineDeployment, a control plane, all of a cluster?
  refit explain machinedeployment/workers -n fleet
  refit explain kubeadmcontrolplane/prod
  refit explain cluster/prod -o json

  # What will Cluster API do with this request of a hook?
  refit explain -f request.json`

const explainLong = `Says what becomes of machines when something changes: which are updated in place and which are replaced, for which field, what that
takes on their nodes, when it may start, and what Cluster API does beside that. It is the server's own engine.

With --from and --to: of the objects of files or directories, as they are and as they will be. MachineDeployments, KubeadmControlPlanes,
Clusters with their ClusterClass, and the templates of them count; other objects are left out, and named. It needs no cluster.

With KIND/NAME: of what waits at a MachineDeployment, a KubeadmControlPlane or a Cluster of the management cluster now.

With -f: of a CanUpdateMachineRequest or a CanUpdateMachineSetRequest, as Cluster API sends them. It needs no cluster.

NodeDisruptionPolicies, KubernetesSources when the version changes, and BootImagePolicies when the image does, count as far as the
objects tell that they select the machine. Where labels of the Cluster are not known, a policy or source that selects Clusters is
taken to select this one, which is said. Policies and sources that API servers refuse are an error.

With --fail-on the exit status is 2 if a machine sees at least that, or may; 1 is an error, and 0 all else.`

func newExplainCommand(others ...updaters.Constructor) *cobra.Command {
	return (&explainFlags{}).command(others...)
}

// explainFlags are those of explain and diff.
type explainFlags struct {
	managementFlags
	request, failOn, now string
	output               printer.Output
	from, to, schedules  []string
	files                explainFiles
	rules                judges.RuleFlags
}

func (f *explainFlags) command(others ...updaters.Constructor) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "explain (-f REQUEST | --from FILE --to FILE | KIND/NAME)",
		Short:   "Say what becomes of machines when something changes, field by field, and why",
		Long:    explainLong,
		Example: explainExample,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			switch {
			case f.request != "":
				return f.explainRequest(cmd, others...)
			case len(args) > 0:
				return f.explainLive(cmd, args[0], others...)
			default:
				return f.explainFiles(cmd, others...)
			}
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&f.request, "filename", "f", "", "File with the request, in JSON or YAML; - for standard input.")
	fs.StringArrayVar(&f.from, "from", nil, "File or directory with objects as they are, in JSON or YAML; - for standard input. Can be there more than once.")
	fs.StringArrayVar(&f.to, "to", nil, "File or directory with objects as they will be. Can be there more than once.")
	fs.StringArrayVar(&f.schedules, "schedule", nil, "File with ChangeManagementPolicies, or directory of such files, which say when changes may start. Can be there more than once.")
	fs.StringArrayVar(&f.files.policies, "policy", nil, "File with NodeDisruptionPolicies, in JSON or YAML; - for standard input. Can be there more than once.")
	fs.StringArrayVar(&f.files.sources, "source", nil, "File with KubernetesSources, in JSON or YAML; - for standard input. Can be there more than once.")
	fs.StringArrayVar(&f.files.images, "boot-image-policy", nil, "File with BootImagePolicies, in JSON or YAML; - for standard input. Can be there more than once.")
	f.addLive(cmd)
	return cmd
}

// addLive adds the flags that explain and diff share.
func (f *explainFlags) addLive(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.addConnection(fs)
	fs.StringVarP(&f.namespace, "namespace", "n", "", "Namespace of the objects. Unset: that of the kubeconfig.")
	f.output.Add(cmd, render.Formats()...)
	fs.StringVar(&f.failOn, "fail-on", "", "Exit with 2 if a machine sees at least this, or may: an action such as Restart, Drain or Reboot, or Replace.")
	fs.StringVar(&f.now, "now", "", "Instant to ask about, in RFC 3339. By default it is now.")
	f.rules.Add(fs)
}

// check returns an error for flags that don't go together.
func (f *explainFlags) check(args []string) error {
	forms := 0
	for _, given := range []bool{f.request != "", len(args) > 0, len(f.from)+len(f.to) > 0} {
		if given {
			forms++
		}
	}
	switch {
	case forms == 0:
		return errors.New("say what to explain: --from and --to with files, KIND/NAME in a management cluster, or -f with a request of a hook")
	case forms > 1:
		return errors.New("-f, --from with --to, and KIND/NAME exclude each other: each is a question of its own")
	case len(args) > 1:
		return errors.New("one object is explained at a time; cluster/NAME has all machines of a cluster")
	case len(f.from) > 0 != (len(f.to) > 0):
		return errors.New("--from and --to go together: what is, and what will be; an empty file is nothing")
	}
	if err := errors.Join(f.checkPolicies(args), f.checkOutput()); err != nil {
		return err
	}
	return checkFiles(slices.Concat([]string{f.request}, f.from, f.to, f.schedules, f.files.policies, f.files.sources, f.files.images)...)
}

// checkPolicies returns an error for files that don't go with the question.
func (f *explainFlags) checkPolicies(args []string) error {
	switch policies := slices.Concat(f.files.policies, f.files.sources, f.files.images, f.schedules); {
	case len(args) > 0 && len(policies) > 0:
		return errors.New("in a management cluster its own policies count; leave --policy, --source, --boot-image-policy and --schedule out")
	case f.request != "" && len(f.schedules) > 0:
		return errors.New("--schedule goes with --from and --to")
	case f.request != "" && f.output.Format == printer.Markdown:
		return errors.New("-o markdown goes with --from and --to, or KIND/NAME")
	}
	return nil
}

// checkOutput returns an error for words that mean nothing.
func (f *explainFlags) checkOutput() error {
	if err := f.output.Check(); err != nil {
		return err
	}
	if least := disruption.ActionType(f.failOn); f.failOn != "" && !least.Known() {
		return fmt.Errorf("--fail-on is %q and can be Replace, or an action: %s", f.failOn, strings.Join(failures(), ", "))
	}
	return nil
}

// failures are the actions that --fail-on takes, the mildest first.
func failures() []string {
	return []string{
		string(disruption.DaemonReload), string(disruption.TrustStoreUpdate), string(disruption.RebuildInitramfs), string(disruption.RebuildBootloader), string(disruption.Reload),
		string(disruption.Restart), string(disruption.NetworkReload), string(disruption.StaticPodRefresh), string(disruption.Drain), string(disruption.Reboot),
	}
}

// disruptions returns what changes take by the flags, and by the policies in files.
func (f *explainFlags) disruptions(cmd *cobra.Command, others ...updaters.Constructor) (*disruptions, error) {
	rules, err := f.rules.Rules()
	if err != nil {
		return nil, err
	}
	return readDisruptions(cmd.InOrStdin(), f.files, rules, others...)
}

// explainRequest explains a request of a hook.
func (f *explainFlags) explainRequest(cmd *cobra.Command, others ...updaters.Constructor) error {
	policies, err := f.disruptions(cmd, others...)
	if err != nil {
		return err
	}
	request, err := readFile(cmd.InOrStdin(), f.request)
	if err != nil {
		return err
	}
	x, err := handlers.NewEngine(policies).Explain(cmd.Context(), request)
	if err != nil {
		return err
	}
	out := &explanation{Explanation: x, Policies: policies.applied, Source: policies.source, Probes: policies.probes, Notes: policies.notes}
	if slices.ContainsFunc(x.Fields, func(f handlers.FieldExplanation) bool { return f.Object == fieldset.InfrastructureMachine }) {
		out.BootImagePolicies, out.Notes = policies.bootImages, append(out.Notes, policies.imageNotes...)
	}
	if err := printExplanation(cmd.OutOrStdout(), out, f.output.Format); err != nil {
		return err
	}
	if least := disruption.ActionType(f.failOn); f.failOn != "" && disruption.Worst(x.Disruption, least) == x.Disruption {
		return &exitStatus{2, fmt.Errorf("--fail-on=%s: the machine sees %s", f.failOn, x.Disruption)}
	}
	return nil
}

// explanation is what the engine says, and by which policies.
type explanation struct {
	*handlers.Explanation

	// Policies are the names of the NodeDisruptionPolicies that count.
	Policies []string `json:"policies"`
	// Probes are what the NodeDisruptionPolicies that count ask the node before and after an update that takes an action.
	Probes []string `json:"probes,omitempty"`
	// BootImagePolicies are the names of those that count.
	BootImagePolicies []string `json:"bootImagePolicies,omitempty"`
	// Source is the name of the KubernetesSource that was asked for a version.
	Source string `json:"source,omitempty"`
	// Notes say what the request does not tell about policies and sources, or why one does not count.
	Notes []string `json:"notes"`
}

// labelled returns a line for each text.
func labelled(label string, texts []string) (all string) {
	for _, text := range texts {
		all += label + text + "\n"
	}
	return all
}

func printExplanation(w io.Writer, x *explanation, output string) error {
	if printed, err := printer.Print(w, output, x); printed {
		return err
	}
	rows := printer.Rows{{"OBJECT", "FIELD", "UPDATER", "DISRUPTION", "ON THE NODE"}}
	for _, f := range x.Fields {
		what := strings.Join(f.Actions, ", ")
		updater := f.Updater
		switch {
		case !f.Covered:
			updater, what = "-", "can't be updated in place: "+f.Reason
		case f.Reason != "":
			what += ": " + f.Reason
		}
		rows.Add(fmt.Sprint(f.Object), f.Path, updater, fmt.Sprint(f.Disruption), what)
	}
	text := fmt.Sprintf("\nVerdict: %s\n", x.Verdict)
	if len(x.Actions) > 0 {
		text += fmt.Sprintf("On the node: %s\nDisruption: %s\n", strings.Join(x.Actions, ", "), x.Disruption)
	}
	if len(x.Policies) > 0 {
		text += fmt.Sprintf("By the policies: %s\n", strings.Join(x.Policies, ", "))
	}
	text += labelled("Asked of the node before and after: ", x.Probes)
	if len(x.BootImagePolicies) > 0 {
		text += fmt.Sprintf("By the BootImagePolicies: %s\n", strings.Join(x.BootImagePolicies, ", "))
	}
	if x.Source != "" {
		text += fmt.Sprintf("By the source: %s\n", x.Source)
	}
	text += labelled("Note: ", x.Notes)
	width := printer.Width(w)
	_, err := io.WriteString(w, rows.Text("", width)+printer.Fold(printable(text), width))
	return err
}
