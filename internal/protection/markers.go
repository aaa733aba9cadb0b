package protection

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	// UpdatingAnnotation on a Node says that refit works on it, for the Machine whose uid is the value. Nobody else sets it; the
	// admission policy that warns those who cordon or delete such a Node looks at it.
	UpdatingAnnotation = "capi-refit.dev/updating"

	// AddedAnnotation on a Machine or a Node notes which markers refit has added there: "<machine uid>:<key>,<key>", in order.
	AddedAnnotation = "capi-refit.dev/added"

	// preDrainHook has Cluster API wait before it drains the node of a Machine that is being deleted.
	preDrainHook = clusterv1.PreDrainDeleteHookAnnotationPrefix + "/refit"

	// owner is the value of what is read by people only.
	owner = "refit"
	// yes is the value of what programs compare.
	yes = "true"
)

// marker is a label or an annotation by which somebody lets a Machine or Node alone.
type marker struct {
	key, value string
	label      bool
}

var machineMarkers = []marker{
	{key: clusterv1.MachineSkipRemediationAnnotation, value: owner}, // MachineHealthCheck
	{key: preDrainHook, value: owner},
}

var nodeMarkers = []marker{
	{key: "remediation.medik8s.io/exclude-from-remediation", value: yes, label: true},
	{key: "cluster-autoscaler.kubernetes.io/scale-down-disabled", value: yes},
	{key: "karpenter.sh/do-not-disrupt", value: yes},
}

func (m marker) of(obj metav1.Object) (string, bool) {
	all := obj.GetAnnotations()
	if m.label {
		all = obj.GetLabels()
	}
	value, ok := all[m.key]
	return value, ok
}

func (m marker) add(obj metav1.Object) {
	all := obj.GetAnnotations()
	if m.label {
		all = obj.GetLabels()
	}
	if all == nil {
		all = map[string]string{}
	}
	all[m.key] = m.value
	if m.label {
		obj.SetLabels(all)
	} else {
		obj.SetAnnotations(all)
	}
}

// remove removes the marker if its value is still refit's.
func (m marker) remove(obj metav1.Object) {
	if value, ok := m.of(obj); !ok || value != m.value {
		return
	}
	all := obj.GetAnnotations()
	if m.label {
		all = obj.GetLabels()
	}
	delete(all, m.key)
}

// record is what an AddedAnnotation says.
type record struct {
	machine types.UID
	keys    []string
}

// recordOf reads the AddedAnnotation. Without one nothing was added.
func recordOf(obj metav1.Object) (record, error) {
	text, ok := obj.GetAnnotations()[AddedAnnotation]
	if !ok {
		return record{}, nil
	}
	machine, keys, ok := strings.Cut(text, ":")
	if !ok || machine == "" || keys == "" {
		return record{}, fmt.Errorf(
			"its annotation %s is not as refit writes it, so that refit can't tell its own markers from others'; remove it, and the markers that nobody needs", AddedAnnotation)
	}
	return record{machine: types.UID(machine), keys: strings.Split(keys, ",")}, nil
}

func (r record) marker() marker {
	slices.Sort(r.keys)
	return marker{key: AddedAnnotation, value: string(r.machine) + ":" + strings.Join(r.keys, ",")}
}

// mark adds the markers that are missing, and notes them. What a record of another Machine's uid notes becomes this one's:
// nobody but refit writes records, and a Machine that was moved between management clusters has another uid since.
func mark(obj metav1.Object, markers []marker, machine types.UID) error {
	added, err := recordOf(obj)
	if err != nil {
		return err
	}
	for _, m := range markers {
		if _, there := m.of(obj); there {
			continue
		}
		m.add(obj)
		if !slices.Contains(added.keys, m.key) {
			added.keys = append(added.keys, m.key)
		}
	}
	if added.machine = machine; len(added.keys) > 0 {
		added.marker().add(obj)
	}
	return nil
}

// unmark removes those markers that the record notes, and the record.
func unmark(obj metav1.Object, markers []marker) error {
	added, err := recordOf(obj)
	if err != nil {
		return err
	}
	for _, m := range markers {
		if slices.Contains(added.keys, m.key) {
			m.remove(obj)
		}
	}
	delete(obj.GetAnnotations(), AddedAnnotation)
	return nil
}
