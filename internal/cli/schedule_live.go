package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/admin"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/schedule"
)

// liveFlags say which Machines of a management cluster are asked about, instead of files.
type liveFlags struct {
	managementFlags
	machine string
}

func (f *liveFlags) add(fs *pflag.FlagSet) {
	// -n is the number of windows here.
	f.addConnection(fs)
	fs.StringVar(&f.namespace, "namespace", "", "Namespace of the Machines. Unset: all are looked through.")
	fs.StringVar(&f.cluster, "cluster", "", "Ask about the Machines of this Cluster, by the policies of the management cluster; with --machine, of which Cluster it is.")
	fs.StringVar(&f.machine, "machine", "", "Ask about this Machine, or that of the node, by the policies of the management cluster.")
}

// asked reports whether a management cluster is to be asked.
func (f *liveFlags) asked() bool { return f.machine != "" || f.cluster != "" }

// next prints the next windows of the Machines that are asked about.
func (f *liveFlags) next(cmd *cobra.Command, flags *policyFlags, n int) error {
	now, err := flags.from()
	if err != nil {
		return err
	}
	groups, err := f.groups(cmd.Context(), now, &flags.class)
	if err != nil {
		return err
	}
	var outputs []liveOutput
	var texts []string
	for _, g := range groups {
		if err := flags.showIn(g.policies); err != nil {
			return err
		}
		outputs = append(outputs, g.output(n))
		texts = append(texts, g.text(n))
	}
	return show(cmd.OutOrStdout(), flags.output.Format, outputs, strings.Join(texts, "\n"))
}

// alike are Machines that the same policies select, with the same overrides.
type alike struct {
	machines []string
	*policies
	decision changemanagement.Decision
	gates    []gateOutput
}

// gateOutput is a health gate of a policy, and what the policy's status has of it, as programs read it.
type gateOutput struct {
	Policy  string            `json:"policy"`
	Name    string            `json:"name"`
	State   refitv1.GateState `json:"state"`
	Message string            `json:"message,omitempty"`
}

// groups returns the Machines that are asked about, with the policies that select them.
func (f *liveFlags) groups(ctx context.Context, now time.Time, of *classFlags) ([]*alike, error) {
	c, err := f.client()
	if err != nil {
		return nil, err
	}
	machines, err := f.machines(ctx, c)
	if err != nil {
		return nil, err
	}
	live, err := readLive(ctx, c, now)
	if err != nil {
		return nil, err
	}
	if live.class, err = of.class(); err != nil {
		return nil, err
	}
	live.said = of.said()
	var groups []*alike
	known := map[string]*alike{}
	for i := range machines {
		one, err := live.ask(ctx, &machines[i])
		if err != nil {
			return nil, err
		}
		key := fmt.Sprintf("%s|%s|%v|%t|%s", machines[i].Namespace, one.names(), one.schedules, one.decision.Open, one.decision.Message)
		if g := known[key]; g != nil {
			g.machines = append(g.machines, one.machines...)
			continue
		}
		known[key] = one
		groups = append(groups, one)
	}
	return groups, nil
}

// machines returns those that are asked about, in the order of their names.
func (f *liveFlags) machines(ctx context.Context, c client.Reader) ([]clusterv1.Machine, error) {
	if f.machine != "" {
		m, err := admin.FindMachine(ctx, c, f.machine, f.scope())
		if err != nil {
			return nil, err
		}
		return []clusterv1.Machine{*m}, nil
	}
	cluster, err := admin.FindCluster(ctx, c, f.scope())
	if err != nil {
		return nil, err
	}
	var list clusterv1.MachineList
	of := client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}
	if err := c.List(ctx, &list, client.InNamespace(cluster.Namespace), of); err != nil {
		return nil, fmt.Errorf("list the Machines of Cluster %s/%s: %w", cluster.Namespace, cluster.Name, err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("Cluster %s/%s has no Machines", cluster.Namespace, cluster.Name) //nolint:staticcheck // Cluster is a kind
	}
	slices.SortFunc(list.Items, func(a, b clusterv1.Machine) int { return cmp.Compare(a.Name, b.Name) })
	return list.Items, nil
}

// livePolicies are those of a management cluster, as the server reads them.
type livePolicies struct {
	client   client.Reader
	policies *changemanagement.Policies
	now      time.Time
	// class is the change that is asked about, if something is said of it.
	class schedule.Class
	said  bool
}

func readLive(ctx context.Context, c client.Reader, now time.Time) (*livePolicies, error) {
	p := changemanagement.NewPolicies(c, c, clock.RealClock{})
	p.Namespace = changemanagement.Installed
	if err := p.Prime(ctx); err != nil {
		return nil, err
	}
	return &livePolicies{client: c, policies: p, now: now}, nil
}

// selecting returns a Machine as policies see it, and those that select it.
func (l *livePolicies) selecting(ctx context.Context, m *clusterv1.Machine) (*changemanagement.Candidate, []*changemanagement.Policy, error) {
	candidate, err := (changemanagement.Candidates{Client: l.client}).Machine(ctx, m)
	if err != nil {
		return nil, nil, err
	}
	selecting, err := l.policies.Select(candidate)
	return candidate, selecting, err
}

// ask asks the policies that select a Machine, with its overrides, about the change that its update is for, if there is one.
func (l *livePolicies) ask(ctx context.Context, m *clusterv1.Machine) (*alike, error) {
	candidate, selecting, err := l.selecting(ctx, m)
	if err != nil {
		return nil, err
	}
	change, err := l.change(ctx, m)
	if err != nil {
		return nil, err
	}
	p := &policies{now: l.now, loc: time.UTC}
	for i, one := range selecting {
		p.schedules = append(p.schedules, one.ScheduleFor(change))
		if i == 0 {
			p.loc = one.Schedule.Location()
		}
	}
	one := &alike{machines: []string{m.Namespace + "/" + m.Name}, policies: p, decision: changemanagement.Decide(l.now, candidate, selecting, change)}
	var refused string
	if one.gates, refused, err = l.gates(ctx, candidate, selecting); err == nil && refused != "" {
		one.decision.Decision = schedule.Decision{
			Reason: schedule.InvalidPolicy, Message: refused, NextChangeETASeconds: schedule.SecondsInvalid, PermissiveRemainingSeconds: schedule.SecondsInvalid,
		}
	}
	return one, err
}

// gates returns the health gates of policies, with what refit has found out: nobody is asked here. refused is why refit takes one of the policies for
// invalid: at which URLs it may ask is not known here.
func (l *livePolicies) gates(ctx context.Context, candidate *changemanagement.Candidate, selecting []*changemanagement.Policy) (out []gateOutput, refused string, err error) {
	for _, p := range selecting {
		if len(p.Gates) == 0 {
			continue
		}
		var policy refitv1.ChangeManagementPolicy
		if err := l.client.Get(ctx, p.NamespacedName, &policy); err != nil {
			return nil, "", fmt.Errorf("read ChangeManagementPolicy %s: %w", p.NamespacedName, err)
		}
		if ready := meta.FindStatusCondition(policy.Status.Conditions, refitv1.ReadyCondition); ready != nil && ready.Status == metav1.ConditionFalse && ready.ObservedGeneration == policy.Generation {
			refused = fmt.Sprintf("policy %s: %s", p.Name, ready.Message)
		}
		for _, g := range p.Gates {
			out = append(out, answered(p.Name, g.Name, candidate.Cluster, policy.Status.Gates))
		}
	}
	return out, refused, nil
}

// answered returns what a health gate has answered last for a Cluster.
func answered(policy, name, cluster string, all []refitv1.GateStatus) gateOutput {
	one := gateOutput{Policy: policy, Name: name, State: refitv1.GateUnknown, Message: "refit has not asked it lately"}
	for _, s := range all {
		if s.Name == name && (s.Cluster == "" || s.Cluster == cluster) {
			one.State, one.Message = s.State, s.Message
		}
	}
	return one
}

// change returns the change that is asked about: the one that is said, the one that waits, or else the one that may start first.
func (l *livePolicies) change(ctx context.Context, m *clusterv1.Machine) (changemanagement.Change, error) {
	change := changemanagement.Change{Class: l.class, Whichever: !l.said}
	mu := &refitv1.MachineUpdate{}
	switch err := l.client.Get(ctx, client.ObjectKeyFromObject(m), mu); {
	case client.IgnoreNotFound(err) != nil:
		return change, fmt.Errorf("read MachineUpdate %s/%s: %w", m.Namespace, m.Name, err)
	case err != nil:
		return change, nil
	}
	change.Digest, change.Permit = mu.ChangeID(), changemanagement.PermitOf(mu, l.now)
	if !l.said && changemanagement.Holds(mu) {
		change.Class, change.Whichever = changemanagement.ClassOf(mu), false
	}
	return change, nil
}

// text returns what is so for Machines, and their next windows.
func (a *alike) text(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", strings.Join(a.machines, ", "))
	state := "closed"
	if a.decision.Open {
		state = "open"
	}
	if len(a.schedules) > 0 {
		fmt.Fprintf(&b, "policies: %s\n", a.names())
	}
	fmt.Fprintf(&b, "now: %s (%s): %s\n", state, a.decision.Reason, printable(a.decision.Message))
	for _, g := range a.gates {
		fmt.Fprintf(&b, "health gate %s of policy %s: %s", g.Name, g.Policy, g.State)
		if g.Message != "" {
			fmt.Fprintf(&b, ": %s", printable(g.Message))
		}
		b.WriteByte('\n')
	}
	if len(a.schedules) > 0 && a.check() == nil && a.decision.Reason != schedule.InvalidPolicy {
		b.WriteString(a.next(n).text())
	}
	return b.String()
}

// liveOutput is the answer about Machines as programs read it.
type liveOutput struct {
	Machines []string       `json:"machines"`
	Policies []string       `json:"policies"`
	Decision decisionOutput `json:"decision"`
	Gates    []gateOutput   `json:"gates,omitempty"`
	Next     openingsOutput `json:"next"`
}

func (a *alike) output(n int) liveOutput {
	out := liveOutput{Machines: a.machines, Policies: []string{}, Decision: newDecisionOutput(a.decision.Decision), Gates: a.gates}
	for _, s := range a.schedules {
		out.Policies = append(out.Policies, s.Name())
	}
	out.Next = a.next(n).output()
	return out
}

// checkLive returns an error if both a management cluster and files are to be asked, or neither.
func checkLive(live *liveFlags, files []string, of *subjectFlags) error {
	switch {
	case live.asked() && (len(files) > 0 || of.given()):
		return errors.New("--machine and --cluster ask the policies of the management cluster; leave --filename, --policy, --role, --labels and --cluster-labels out")
	case !live.asked() && len(files) == 0:
		return errors.New("say which policies are asked: files with --filename, or those of a management cluster with --machine or --cluster")
	default:
		return nil
	}
}
