package updaters

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/node"
)

// TestWhatUpdatersNameHasAName: an updater outside of refit's module can write down all that it is given and gives.
func TestWhatUpdatersNameHasAName(t *testing.T) {
	named := map[reflect.Type]bool{}
	for _, of := range []any{
		Change{}, ObjectChange{}, Field{}, Spec{}, Object(""), Operation(""), Rules{}, Domain(""), Action{}, ActionType(""),
		Resource{}, File{}, Unit{}, NTP{}, User{},
	} {
		named[reflect.TypeOf(of)] = true
	}
	seen := map[reflect.Type]bool{
		reflect.TypeFor[context.Context](): true,
		// Of these nothing but methods is for updaters.
		reflect.TypeFor[Rules](): true,
		// These are for machines that kubeadm makes.
		reflect.TypeFor[node.Kubelet](): true, reflect.TypeFor[node.KubeletConfig](): true, reflect.TypeFor[node.ControlPlane](): true, reflect.TypeFor[node.Version](): true,
	}
	found := 0
	var walk func(of reflect.Type)
	walk = func(of reflect.Type) {
		if seen[of] {
			return
		}
		seen[of] = true
		if strings.Contains(of.PkgPath(), "refit/internal/") {
			found++
			require.True(t, named[of], "%s has no name here", of)
		}
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(of.Elem())
		case reflect.Func:
			for i := range of.NumIn() {
				walk(of.In(i))
			}
			for i := range of.NumOut() {
				walk(of.Out(i))
			}
		case reflect.Struct:
			for i := range of.NumField() {
				if of.Field(i).IsExported() {
					walk(of.Field(i).Type)
				}
			}
		case reflect.Interface:
			for i := range of.NumMethod() {
				walk(of.Method(i).Type)
			}
		default: // leads nowhere
		}
	}
	walk(reflect.TypeFor[NodeUpdater]())
	walk(reflect.TypeFor[Constructor]())
	require.Greater(t, found, 10)
}
