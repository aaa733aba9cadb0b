package handlers

import (
	"strings"
	"sync"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/updaters/image"
	"github.com/capi-refit/refit/updaters/inert"
	"github.com/capi-refit/refit/updaters/kubeadmconfig/fields"
	"github.com/capi-refit/refit/updaters/version"
)

// otherField is the label of the fields that refit does not know.
const otherField = "other"

// knownFields are the fields that have a label of their own, by object: those that refit has a verdict about. Whoever calls can
// make fields up, so their names are no labels.
var knownFields = sync.OnceValue(func() map[fieldset.Object]map[string]bool {
	known := map[fieldset.Object]map[string]bool{fieldset.Machine: {}, fieldset.InfrastructureMachine: {}, fieldset.BootstrapConfig: {}}
	for _, f := range fields.All() {
		add(known[fieldset.BootstrapConfig], f.Path)
	}
	for _, e := range inert.Table() {
		add(known[e.Object], e.Path)
	}
	for _, k := range image.Table() {
		for _, p := range k.Paths {
			add(known[fieldset.InfrastructureMachine], p)
		}
	}
	add(known[fieldset.Machine], version.Field)
	return known
})

// add adds a path and all that lead to it. Of items of lists, which are [], those with keys have fields of their own; a mapping with
// any keys ends at *.
func add(known map[string]bool, path string) {
	label := "spec"
	known[label] = true
	for step := range strings.SplitSeq(path, ".") {
		name := strings.TrimRight(step, "[]")
		if name == "" || name == "*" {
			return
		}
		label += "." + name
		known[label] = true
		for range (len(step) - len(name)) / 2 {
			label += "[]"
			known[label] = true
		}
	}
}

// fieldLabel are the labels of a field.
type fieldLabel struct {
	object fieldset.Object
	field  string
}

// labelOf returns the label of a field: its names, if refit knows it; those of the field that it is below, if refit knows that one;
// else otherField.
func labelOf(f fieldset.Field, byKubeadm bool) string {
	if f.Object == fieldset.BootstrapConfig && !byKubeadm {
		return otherField
	}
	known := knownFields()[f.Object]
	name := "spec"
	for i, e := range f.Path {
		next := name + "[]"
		if e.FieldName != nil {
			next = name + "." + *e.FieldName
		}
		switch {
		case known[next]:
			name = next
		case i == 0:
			return otherField
		default:
			return name + ".…"
		}
	}
	return name
}
