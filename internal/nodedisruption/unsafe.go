package nodedisruption

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/schedule"
)

// checkFloor returns the entries of a policy that say unsafe: true, and an error for each other one that leaves out what is built in for
// the same thing and brings changes into effect, or tests them.
func checkFloor(s *refitv1.NodeDisruptionPolicySpec, rules disruption.Rules) (unsafe []string, err error) {
	var errs []error
	check := func(field string, says *refitv1.Disruption, short error) {
		switch {
		case says.Unsafe:
			unsafe = append(unsafe, field)
		case short != nil:
			errs = append(errs, &schedule.FieldError{Field: field + ".actions", Err: short})
		}
	}
	for i := range s.Files {
		f := &s.Files[i]
		check(fmt.Sprintf("files[%s]", f.Path), &f.Disruption, disruption.Floor(f.Path, rules.Files[i].Actions))
	}
	for i := range s.Units {
		u := &s.Units[i]
		check(fmt.Sprintf("units[%s]", u.Name), &u.Disruption, disruption.FloorOfUnit(u.Name, rules.Units[i].Actions))
	}
	for _, d := range domainsOf(s) {
		if d.says != nil {
			check(d.field, d.says, disruption.FloorOfDomain(d.domain, rules.Domains[d.domain]))
		}
	}
	return unsafe, errors.Join(errs...)
}

// said is what a policy says about what is no file.
type said struct {
	field  string
	domain disruption.Domain
	says   *refitv1.Disruption
}

func domainsOf(s *refitv1.NodeDisruptionPolicySpec) []said {
	return []said{
		{"sshKeys", disruption.SSHKeys, s.SSHKeys},
		{"users", disruption.Users, s.Users},
		{"ntp", disruption.NTP, s.NTP},
		{"kubeletArguments", disruption.KubeletArguments, s.KubeletArguments},
		{"controlPlane", disruption.ControlPlane, s.ControlPlane},
		{"taints", disruption.Taints, s.Taints},
		{"kubernetesVersion", disruption.KubernetesVersion, s.KubernetesVersion},
	}
}

// unsafeNote tells people of an entry.
func unsafeNote(policy, field string) string {
	return fmt.Sprintf("NodeDisruptionPolicy %s says unsafe: true of %s, so what is built in for it need not be done there", policy, field)
}

var unsafeDesc = prometheus.NewDesc("refit_node_disruption_policy_unsafe_entries",
	"How many entries of the NodeDisruptionPolicy say unsafe: true, and may leave out what brings changes into effect, or tests them.",
	[]string{"namespace", "policy"}, nil)

// unsafeCollector shows to Prometheus how much of policies is unsafe.
type unsafeCollector struct{ *Policies }

// UnsafeCollector shows to Prometheus how many entries of policies are unsafe.
func (p *Policies) UnsafeCollector() prometheus.Collector { return unsafeCollector{p} }

// Describe implements prometheus.Collector.
func (unsafeCollector) Describe(ch chan<- *prometheus.Desc) { ch <- unsafeDesc }

// Collect implements prometheus.Collector.
func (c unsafeCollector) Collect(ch chan<- prometheus.Metric) {
	for namespace, policies := range c.All() {
		for _, p := range policies {
			ch <- prometheus.MustNewConstMetric(unsafeDesc, prometheus.GaugeValue, float64(len(p.unsafe)), namespace, p.Name)
		}
	}
}
