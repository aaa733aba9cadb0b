package cli

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/judges"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/nodedisruption"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/controlplane"
	"github.com/capi-refit/refit/updaters/inert"
	"github.com/capi-refit/refit/updaters/kubeadmconfig"
	"github.com/capi-refit/refit/updaters/kubeadmconfig/fields"
	kubernetesversion "github.com/capi-refit/refit/updaters/version"
)

var updatePage = flag.Bool("update-fields", false, "write docs/fields.md again")

var fieldsPage = filepath.Join(docsDir, "fields.md")

// judged is what becomes of the changes of one field of a kind of machine.
type judged struct {
	fields.Field
	// decisions are those of the changes, in their order; future are those by policies that allow futureOnlyFields.
	decisions, future []updaters.Decision
}

// judgeFields asks the updaters about every change of every field.
func judgeFields(t *testing.T, m fields.Machine) []judged {
	e := nodedisruption.Join(disruption.BuiltinRules())
	byDefault, err := judges.List()(e)
	require.NoError(t, err)
	e.FutureOnly = true
	future, err := judges.List()(e)
	require.NoError(t, err)
	of := controlplane.New(e.Rules).Of("v1.36.3")
	byDefault, future = byDefault.With(of), future.With(of)
	decide := func(r *updaters.Registry, f fields.Field) (all []updaters.Decision) {
		for _, c := range f.Changes {
			oc, differs := c.Of(m).ObjectChange()
			require.True(t, differs, f.Path)
			d, err := r.Decide(t.Context(), fieldset.Change{oc})
			require.NoError(t, err)
			all = append(all, d)
		}
		return all
	}
	var all []judged
	for _, f := range fields.All() {
		all = append(all, judged{Field: f, decisions: decide(byDefault, f), future: decide(future, f)})
	}
	return all
}

// TestEveryFieldHasAVerdict fails when Cluster API adds a field, until an updater says what becomes of it.
func TestEveryFieldHasAVerdict(t *testing.T) {
	for _, m := range []fields.Machine{fields.ControlPlane, fields.Worker} {
		for _, f := range judgeFields(t, m) {
			t.Run(string(m)+" "+f.Path, func(t *testing.T) {
				for i, d := range f.decisions {
					for _, v := range d {
						if v.Covered() {
							require.NotEmpty(t, v.Actions, "%s %s", f.Changes[i].Operation, v.Field)
							continue
						}
						require.NotContains(t, v.Reason, "no updater knows this field", "%s %s", f.Changes[i].Operation, v.Field)
						require.NotContains(t, v.Reason, "does not know the field", "%s %s", f.Changes[i].Operation, v.Field)
						require.NotEmpty(t, v.Reason, "%s %s", f.Changes[i].Operation, v.Field)
					}
				}
			})
		}
	}
}

// TestFieldsPage compares the page with what the updaters say. To write it again:
// go test ./internal/cli -run TestFieldsPage -update-fields.
func TestFieldsPage(t *testing.T) {
	controlPlane, worker := judgeFields(t, fields.ControlPlane), judgeFields(t, fields.Worker)
	var sections []string
	rows := map[string]string{}
	for i, f := range controlPlane {
		s := sectionOf(f.Path)
		if rows[s] == "" && s != theRest {
			sections = append(sections, s)
		}
		rows[s] += row(f, worker[i])
	}
	var b strings.Builder
	b.WriteString(fieldsHead)
	for _, s := range append(sections, theRest) {
		fmt.Fprintf(&b, "\n## %s\n\n%s| field | updater | control plane | worker | remark |\n|---|---|---|---|---|\n%s", s, fieldsNotes[s], rows[s])
	}
	b.WriteString("\n## Other objects\n\n| object | field | in place | why |\n|---|---|---|---|\n")
	b.WriteString(versionRow(t))
	for _, e := range inert.Table() {
		if e.Object == fieldset.BootstrapConfig {
			continue
		}
		field := "`" + e.Path + "`"
		if e.Path == "" {
			field = "all"
		}
		inPlace := "no"
		if e.Object == fieldset.InfrastructureMachine {
			inPlace = "only if declared, or an [image](boot-images.md)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", e.Object, field, inPlace, cell(e.Why))
	}
	if *updatePage {
		require.NoError(t, os.WriteFile(fieldsPage, []byte(b.String()), 0o600))
	}
	require.Equal(t, b.String(), readPage(t, fieldsPage),
		"the page is out of date; write it again with go test ./internal/cli -run TestFieldsPage -update-fields")
}

// anyVersion stands in for a KubernetesSource that has every version.
type anyVersion struct{}

func (anyVersion) For(v string) (*node.Source, error) { return &node.Source{Version: v}, nil }

// versionRow is what the page says of the version of a machine.
func versionRow(t *testing.T) string {
	u := kubernetesversion.New(disruption.BuiltinRules(), func(context.Context) (kubernetesversion.Source, error) { return anyVersion{}, nil })
	machine := func(v string) fieldset.Spec {
		return fieldset.Spec{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Value: map[string]any{"version": v}}
	}
	oc, differs := fieldset.NewObjectChange(fieldset.Machine, machine("v1.36.3"), machine("v1.37.0"))
	require.True(t, differs)
	claim, err := u.Claim(t.Context(), fieldset.Change{oc})
	require.NoError(t, err)
	require.Len(t, claim.Covered, 1)
	return fmt.Sprintf("| machine | `version` | a newer patch, or the next minor: %s | if a KubernetesSource of the machine has it; see [Kubernetes versions](kubernetes-versions.md) |\n",
		strings.Join(actionWords(claim.Covered[0].Actions), ", "))
}

const theRest = "The rest"

// sectionOf returns the heading below which a field is.
func sectionOf(path string) string {
	steps := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' })
	switch {
	case len(steps) > 1 && strings.HasSuffix(steps[0], "Configuration"):
		return steps[0]
	case slices.Contains([]string{"files", "users", "ntp", "diskSetup"}, steps[0]):
		return steps[0]
	default:
		return theRest
	}
}

// row is what the page says of a field.
func row(controlPlane, worker judged) string {
	remark := controlPlane.remark()
	if other := worker.remark(); other != remark {
		var parts []string
		if remark != "" {
			parts = append(parts, "control plane: "+remark)
		}
		if other != "" {
			parts = append(parts, "worker: "+other)
		}
		remark = strings.Join(parts, "; ")
	}
	names := slices.Compact(slices.Sorted(slices.Values(append(controlPlane.updaters(), worker.updaters()...))))
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n",
		controlPlane.Path, strings.Join(names, ", "), controlPlane.verdict(), worker.verdict(), cell(remark))
}

// verdict is what becomes of the field on one kind of machine.
func (f judged) verdict() string {
	inPlace, not := f.split(f.decisions)
	if len(inPlace) == 0 {
		if optional, _ := f.split(f.future); len(optional) > 0 {
			return "by opt-in"
		}
		return "no"
	}
	takes := strings.Join(actionWords(f.actions()), ", ")
	if len(not) > 0 {
		return strings.Join(inPlace, ", ") + ": " + takes
	}
	return takes
}

// split returns in which ways the field can change in place, and in which it can't.
func (f judged) split(decisions []updaters.Decision) (inPlace, not []string) {
	for i, d := range decisions {
		if o := strings.ToLower(string(f.Changes[i].Operation)); d.InPlace() {
			inPlace = append(inPlace, o)
		} else {
			not = append(not, o)
		}
	}
	return inPlace, not
}

// actions returns all that the changes take that can be made in place.
func (f judged) actions() []disruption.Action {
	var all [][]disruption.Action
	for _, d := range f.decisions {
		for _, v := range d {
			if d.InPlace() {
				all = append(all, v.Actions)
			}
		}
	}
	return disruption.Merge(all...)
}

func actionWords(actions []disruption.Action) (all []string) {
	for _, a := range actions {
		all = append(all, a.String())
	}
	return all
}

func (f judged) updaters() []string {
	names := map[string]bool{}
	for _, d := range f.future {
		for _, v := range d {
			if v.Covered() {
				names["`"+v.Updater+"`"] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// remark is why the field is left or, if there is a reason why it takes nothing, that.
func (f judged) remark() string {
	inPlace, _ := f.split(f.decisions)
	var reasons []string
	for i, d := range f.decisions {
		for _, v := range d {
			reason := v.Reason
			switch {
			case v.Updater == inert.Name:
				e, _ := inert.Lookup(fieldset.BootstrapConfig, kubeadmconfig.Location(v.Field)...)
				reason = e.Why
			case v.Covered():
				continue
			case len(inPlace) > 0:
				reason = strings.ToLower(string(f.Changes[i].Operation)) + ": " + reason
			}
			if !slices.Contains(reasons, reason) {
				reasons = append(reasons, reason)
			}
		}
	}
	return strings.Join(reasons, "; ")
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

const fieldsHead = `# Every field of a KubeadmConfig

What becomes of a change of each field of a KubeadmConfig (` + "`bootstrap.cluster.x-k8s.io/v1beta2`" + `) on a node that runs: of a control-plane
machine, and of a worker. The page is made out of what the updaters themselves answer, one change at a time, so ` + "`refit explain`" + ` says the
same; it fails a test when it is out of date.

- **None, Restart …, StaticPodRefresh, Drain …**: the change is made in place, and takes this on the node by the built-in rules. A
  NodeDisruptionPolicy can say otherwise for files, users, SSH keys, NTP, arguments of the kubelet, the control plane, taints and
  the version of Kubernetes.
- **added, changed: …**: only such changes are made in place. The remark says what becomes of the others.
- **by opt-in**: the running node is left as it is, and the change is for machines made later. It is claimed by a NodeDisruptionPolicy with
  ` + "`futureOnlyFields: Allow`" + `.
- **no**: Cluster API replaces the machine. One such field in a change is enough for that.

` + "`[]`" + ` stands for the items of a list, and ` + "`*`" + ` for any key. Values count as well: a path that no rule names, a name that useradd refuses or content that
cloud-init would render are left with a reason that ` + "`refit explain`" + ` shows. The rows are about values without such trouble.
`

// fieldsNotes are what can't be told one field at a time.
var fieldsNotes = map[string]string{
	"clusterConfiguration": "Workers do not read it. The rows are about Kubernetes v1.36.3: a change is claimed only if kubeadm of the machine's version makes it " +
		"when refit has it make the static pods again.\n\n" +
		"- **etcd's tag** has to be a version that kubeadm can read, such as 3.6.8-0, and no older than the one before: kubeadm leaves etcd as it is where " +
		"an older one is wanted, of a patch as well, and fails where it can't compare, whatever of etcd's static pod changes. Where no tag was named " +
		"kubeadm has chosen one, so a first one has to be no older than what kubeadm of that minor version of Kubernetes is known to choose.\n" +
		"- **Feature gates** are kubeadm's. The row is about RootlessControlPlane, which acts on the static pods. PublicKeysECDSA, NodeLocalCRISocket, " +
		"ControlPlaneKubeletLocalMode and others act when a machine is made or joins, so that a change of them is none of this node's: it is claimed only if the " +
		"gate is named as it is anyway or, of the two last ones, if the version of Kubernetes changes with it, since kubeadm then acts on them. A gate " +
		"that kubeadm of the version does not have is not claimed.\n\n",
	"initConfiguration": "Cluster API compares the machine that `kubeadm init` made as one that has joined, so what counts is in joinConfiguration. " +
		"These rows are about templates that have both.\n\n",
	"joinConfiguration": "What an argument of the kubelet takes goes by its name: those by which containers are placed on CPUs and memory take a " +
		"Drain as well, `node-labels` and `register-with-taints` are changed on the Node, and some are not changed at all. So does a taint with the " +
		"effect NoExecute take a Drain.\n\n",
	"files": "What a change of a file takes goes by its path. The rows are about `/etc/motd`, which takes nothing.\n\n",
	"users": "Accounts are never deleted: one that the specs no longer list is locked and expired, and loses the keys and the sudo rule that " +
		"refit gave it. Of root only the SSH keys are changed. The last key by which refit itself comes in is not taken away.\n\n",
	"ntp": "The unit stands for the one of the program that the node has: systemd-timesyncd or chrony. What is switched on or off is started or " +
		"stopped, and not restarted as well. Without `ntp` the node goes back to the servers that it comes with.\n\n",
}
