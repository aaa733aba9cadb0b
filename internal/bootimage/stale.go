package bootimage

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

const (
	reasonStale = "TemplatesOlderThanMachines"
	reasonFresh = "TemplatesAsMachines"
)

// stale is a template whose image has an older version of Kubernetes than a Machine that runs.
type stale struct{ image, machine, version string }

// compare compares the version of Kubernetes that a Machine runs with that of the image that it names, which the next machine of its template boots.
// Of several machines of a template the one with the newest version is told, the first by name.
func (c *census) compare(p *Policy, m *machine, image string) {
	if p.pattern != defaultPattern {
		return // it finds a version of something else
	}
	runs, known := parseVersion(m.Spec.Version)
	has := newestOfKubernetes(image)
	if !known || has == nil {
		return
	}
	c.versioned++
	if has.compare(runs) >= 0 {
		return
	}
	name := m.template()
	one := stale{image, m.Name, m.Spec.Version}
	before, there := c.stale[name]
	newest, _ := parseVersion(before.version)
	if order := newest.compare(runs); !there || order < 0 || order == 0 && one.machine < before.machine {
		c.stale[name] = one
	}
}

// kubernetesVersion finds versions that a name says are of Kubernetes: k8s-v1.36.1, say, or kube_1.36.1. Systems and runtimes have versions of that shape, too.
var kubernetesVersion = regexp.MustCompile(`(?i)(?:k8s|kube|kubernetes)[-_. ]?v?(1\.\d{2}\.\d+)`)

// newestOfKubernetes returns the newest version of Kubernetes that an image names; nil if it names none.
func newestOfKubernetes(image string) version {
	var newest version
	for _, match := range kubernetesVersion.FindAllStringSubmatch(image, -1) {
		if v, ok := parseVersion(match[1]); ok && (newest == nil || v.compare(newest) > 0) {
			newest = v
		}
	}
	return newest
}

// setStale reports whether templates would make machines that are older than those that run.
func setStale(st *refitv1.BootImagePolicyStatus, found *census) {
	if found.versioned == 0 {
		meta.RemoveStatusCondition(&st.Conditions, refitv1.StaleTemplatesCondition)
		return
	}
	c := metav1.Condition{
		Type: refitv1.StaleTemplatesCondition, Status: metav1.ConditionFalse, Reason: reasonFresh, ObservedGeneration: st.ObservedGeneration,
		Message: "no image has an older version of Kubernetes than the machines that name it",
	}
	if len(found.stale) > 0 {
		var told []string
		for _, name := range slices.Sorted(maps.Keys(found.stale)) {
			s := found.stale[name]
			told = append(told, fmt.Sprintf("%s names %s, and Machine %s is of %s", name, s.image, s.machine, s.version))
		}
		c.Status, c.Reason = metav1.ConditionTrue, reasonStale
		c.Message = "machines that are made now would boot an older version of Kubernetes than machines that run: " + firstOf(told) +
			"; give the templates an image of the version that runs"
	}
	meta.SetStatusCondition(&st.Conditions, c)
}

// firstOf joins as many texts as people read.
func firstOf(all []string) string {
	if more := len(all) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:maxNamed], "; "), more)
	}
	return strings.Join(all, "; ")
}
