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

	// HoldAddedAnnotation notes the same for people's holds: which markers a hold needs that refit has added, for a hold or for an
	// update.
	HoldAddedAnnotation = AddedAnnotation + "-by-hold"

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

// party is for whom refit adds markers: its updates, or people who hold nodes. It is the name of the annotation that notes them. A
// marker that both need goes with the last of them.
type party string

const (
	updates party = AddedAnnotation
	holds   party = HoldAddedAnnotation
)

func (p party) other() party {
	if p == holds {
		return updates
	}
	return holds
}

// record is what an AddedAnnotation says.
type record struct {
	machine types.UID
	keys    []string
}

// recordOf reads what is noted for a party. Without a note nothing was added.
func (p party) recordOf(obj metav1.Object) (record, error) {
	text, ok := obj.GetAnnotations()[string(p)]
	if !ok {
		return record{}, nil
	}
	machine, keys, ok := strings.Cut(text, ":")
	if !ok || machine == "" || keys == "" {
		return record{}, fmt.Errorf("%w; remove its annotation %s, and the markers that nobody needs", ErrRecord, p)
	}
	return record{machine: types.UID(machine), keys: strings.Split(keys, ",")}, nil
}

func (r record) marker(of party) marker {
	slices.Sort(r.keys)
	return marker{key: string(of), value: string(r.machine) + ":" + strings.Join(r.keys, ",")}
}

// mark adds the markers that are missing, and notes them for the party, with those that refit has added for the other one. What a record of
// another Machine's uid notes becomes this one's: nobody but refit writes records, and a Machine that was moved between management clusters
// has another uid since.
func (p party) mark(obj metav1.Object, markers []marker, machine types.UID) error {
	added, err := p.recordOf(obj)
	if err != nil {
		return err
	}
	others, err := p.other().recordOf(obj)
	if err != nil {
		others = record{} // what is there then counts as somebody's, and stays
	}
	for _, m := range markers {
		value, there := m.of(obj)
		if there && (value != m.value || !slices.Contains(others.keys, m.key)) {
			continue
		}
		m.add(obj)
		if !slices.Contains(added.keys, m.key) {
			added.keys = append(added.keys, m.key)
		}
	}
	if added.machine = machine; len(added.keys) > 0 {
		added.marker(p).add(obj)
	}
	return nil
}

// unmark removes those markers that are noted for the party and not for the other one, and the note.
func (p party) unmark(obj metav1.Object, markers []marker) error {
	added, err := p.recordOf(obj)
	if err != nil {
		return err
	}
	others, unknown := p.other().recordOf(obj)
	for _, m := range markers {
		kept := slices.Contains(others.keys, m.key) || unknown != nil && m.shared()
		if slices.Contains(added.keys, m.key) && !kept {
			m.remove(obj)
		}
	}
	delete(obj.GetAnnotations(), string(p))
	return nil
}

// shared reports whether updates and holds use the same marker.
func (m marker) shared() bool { return m.key != preDrainHook && m.key != holdHook }
