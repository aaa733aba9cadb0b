package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/schedule"
)

// subjectFlags say about which machine policies are asked.
type subjectFlags struct {
	policies                    []string
	role, labels, clusterLabels string
	// namespaceLabels are those of the namespace, for the platform's policies.
	namespaceLabels string
}

// errNoneSelects says that no policy is asked.
var errNoneSelects = errors.New("none of the policies selects such a machine, so that its changes start at any time")

func (f *subjectFlags) add(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.policies, "policy", nil, "Name of a policy to ask; the others are left out. Can be there more than once.")
	fs.StringVar(&f.role, "role", "", "Ask the policies that select a machine of the role: ControlPlane or Worker.")
	fs.StringVar(&f.labels, "labels", "", "Ask the policies that select a machine with these labels, such as pool=gpu,zone=a.")
	fs.StringVar(&f.namespaceLabels, "namespace-labels", "", "Ask the policies of the platform that are for a namespace with these labels. By default all of them are asked.")
	fs.StringVar(&f.clusterLabels, "cluster-labels", "", "Ask the policies that select the machines of a cluster with these labels.")
}

// given reports whether something is said about the machine.
func (f *subjectFlags) given() bool {
	return len(f.policies) > 0 || f.role != "" || f.labels != "" || f.clusterLabels != "" || f.namespaceLabels != ""
}

// choose returns the policies that are asked: those that are named, or that select the machine. All of them are asked together, so that they have to
// be for one machine.
func (f *subjectFlags) choose(p *policies) (*policies, error) {
	keep, err := f.selects(p)
	if err != nil {
		return nil, err
	}
	some := p.only(slices.DeleteFunc(slices.Clone(p.schedules), func(s *schedule.Schedule) bool { return !keep(s) })...)
	if len(some.schedules) == 0 {
		return nil, errNoneSelects
	}
	groups := some.inNamespaces(some.schedules)
	if len(groups) > 1 {
		return nil, fmt.Errorf("%s are in different namespaces, and so never asked together: name the files of one namespace", some.names())
	}
	if len(groups[0]) < len(some.schedules) { // some of the platform are not for the namespace
		some = p.only(groups[0]...)
	}
	if len(f.policies) == 0 && !some.share() {
		return nil, fmt.Errorf("no machine is selected by all of %s, so that they are never asked together: say about which machine you ask, by --role, --labels, --cluster-labels, or by --policy", some.names())
	}
	some.loc = some.schedules[0].Location()
	return some, nil
}

// selects returns what keeps a policy.
func (f *subjectFlags) selects(p *policies) (func(*schedule.Schedule) bool, error) {
	if err := f.checkNames(p); err != nil {
		return nil, err
	}
	role := refitv1.Role(f.role)
	if role != "" && role != refitv1.ControlPlaneRole && role != refitv1.WorkerRole {
		return nil, fmt.Errorf("--role is %q and can be ControlPlane or Worker", f.role)
	}
	machine, err := parseLabels("labels", f.labels)
	if err != nil {
		return nil, err
	}
	cluster, err := parseLabels("cluster-labels", f.clusterLabels)
	if err != nil {
		return nil, err
	}
	namespace, err := parseLabels("namespace-labels", f.namespaceLabels)
	if err != nil {
		return nil, err
	}
	return func(s *schedule.Schedule) bool {
		policy := p.selectors[s]
		return f.named(policy, s) && f.selectsCluster(policy, namespace, cluster) && f.selectsMachine(p, s, role, machine)
	}, nil
}

// named reports whether a policy is among those that are named, if some are.
func (f *subjectFlags) named(p *changemanagement.Policy, s *schedule.Schedule) bool {
	return len(f.policies) == 0 || slices.Contains(f.policies, p.Name) || slices.Contains(f.policies, s.Name())
}

// selectsCluster reports whether a policy may be for a cluster in a namespace, with these labels, as far as these are said.
func (f *subjectFlags) selectsCluster(p *changemanagement.Policy, namespace, cluster labels.Set) bool {
	if p.Namespaces != nil && f.namespaceLabels != "" && !p.Namespaces.Matches(namespace) {
		return false
	}
	return f.clusterLabels == "" || p.Selector.Cluster(cluster)
}

// checkNames returns an error if there is no policy of a name.
func (f *subjectFlags) checkNames(p *policies) error {
	for _, name := range f.policies {
		if !slices.ContainsFunc(p.schedules, func(s *schedule.Schedule) bool { return s.Name() == name || p.selectors[s].Name == name }) {
			return fmt.Errorf("--policy is %q, and there are %s", name, p.names())
		}
	}
	return nil
}

// selectsMachine reports whether a policy may be for a machine of the role and with the labels, as far as these are said.
func (f *subjectFlags) selectsMachine(p *policies, s *schedule.Schedule, role refitv1.Role, machine labels.Set) bool {
	of := p.specs[s].Selector.Roles
	roles := []refitv1.Role{role}
	if role == "" {
		roles = []refitv1.Role{refitv1.ControlPlaneRole, refitv1.WorkerRole}
	}
	return slices.ContainsFunc(roles, func(role refitv1.Role) bool {
		if f.labels == "" {
			return len(of) == 0 || slices.Contains(of, role)
		}
		return p.selectors[s].Selector.Machine(role, machine)
	})
}

func parseLabels(flag, text string) (labels.Set, error) {
	if text == "" {
		return nil, nil
	}
	set, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		return nil, fmt.Errorf("--%s is %q and is to be such as pool=gpu,zone=a: %s", flag, text, strings.TrimPrefix(err.Error(), "invalid selector: "))
	}
	return set, nil
}
