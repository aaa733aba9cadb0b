package fieldset

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// many is a spec of an infrastructure machine with n fields in a mapping.
func many(n int, v string) Spec {
	tags := map[string]any{}
	for i := range n {
		tags[fmt.Sprint("k", i)] = v
	}
	return Spec{APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "AWSMachine", Value: map[string]any{"tags": tags, "x": v}}
}

func TestCompareEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := Compare(ctx, InfrastructureMachine, many(5000, "a"), many(5000, "b"))
	require.ErrorIs(t, err, context.Canceled)
}

func TestCompareIsBounded(t *testing.T) {
	c, differs, err := Compare(t.Context(), InfrastructureMachine, many(MaxFields-1, "a"), many(MaxFields-1, "b"))
	require.NoError(t, err)
	require.True(t, differs)
	require.Len(t, c.Fields, MaxFields)
	_, _, err = Compare(t.Context(), InfrastructureMachine, many(MaxFields, "a"), many(MaxFields, "b"))
	require.ErrorIs(t, err, errTooMany)
	_, differs, err = Compare(t.Context(), InfrastructureMachine, many(MaxFields, "a"), many(MaxFields, "a"))
	require.NoError(t, err, "what does not differ does not count")
	require.False(t, differs)

	deep := func(n int, v string) Spec {
		s := many(n, v)
		for range 90 {
			s.Value = map[string]any{"a": s.Value}
		}
		return s
	}
	_, _, err = Compare(t.Context(), InfrastructureMachine, deep(MaxFields/9, "a"), deep(MaxFields/9, "b"))
	require.ErrorIs(t, err, errTooMany, "the paths of all fields are bounded, too")
}

// TestPatchOfManyFields: more than maxOperations fields of a mapping are one operation, and change only what is covered.
func TestPatchOfManyFields(t *testing.T) {
	const n = maxOperations
	for name, desired := range map[string]Spec{"changed": many(n, "b"), "removed": many(1, "a")} {
		for part, covers := range map[string]func(int) bool{
			"all": func(int) bool { return true }, "half of them": func(i int) bool { return i%2 == 0 },
		} {
			t.Run(name+", "+part, func(t *testing.T) {
				c, differs := NewObjectChange(InfrastructureMachine, many(n, "a"), desired)
				require.True(t, differs)
				set, left := fieldpath.NewSet(), fieldpath.NewSet()
				for i, f := range c.Fields {
					if covers(i) {
						set.Insert(f.Path)
					} else {
						left.Insert(f.Path)
					}
				}
				patch, err := c.Patch("/spec", within(c, set))
				require.NoError(t, err)
				var operations []map[string]any
				require.NoError(t, json.Unmarshal(patch, &operations))
				require.LessOrEqual(t, len(operations), maxOperations)

				spec, err := json.Marshal(c.Current.Value)
				require.NoError(t, err)
				out, err := ApplyPatch([]byte(`{"spec":`+string(spec)+`}`), patch)
				require.NoError(t, err)
				object, err := Decode(out)
				require.NoError(t, err)
				got := c.Current
				got.Value = object.(map[string]any)["spec"]
				rest, _ := NewObjectChange(InfrastructureMachine, got, desired)
				require.True(t, left.Equals(all(rest.Fields)))
			})
		}
	}
}

// TestMachineIsNeverSetAsAWhole: what Cluster API does not compare is not in the spec that was compared, and would be lost.
func TestMachineIsNeverSetAsAWhole(t *testing.T) {
	c, _ := NewObjectChange(Machine, many(maxOperations, "a"), many(maxOperations, "b"))
	_, err := c.Patch("/spec", make([]bool, len(c.Fields)))
	require.ErrorContains(t, err, "fields of the machine differ")
}

func TestPatchTakesTheFieldsOfTheChange(t *testing.T) {
	c, _ := NewObjectChange(InfrastructureMachine, many(1, "a"), many(1, "b"))
	_, err := c.Patch("/spec", []bool{true})
	require.ErrorIs(t, err, errNotOfTheChange)
}

// TestKeysOfItems: no two keys are taken for one, and an item with a key that no path has is not told apart.
func TestKeysOfItems(t *testing.T) {
	taint := func(key, effect string) map[string]any { return map[string]any{"key": key, "effect": effect} }
	spec := func(items ...any) Spec {
		s := config(t, "")
		s.Value = map[string]any{"joinConfiguration": map[string]any{"nodeRegistration": map[string]any{"taints": items}}}
		return s
	}
	for _, pair := range [][2]map[string]any{{taint("a\x00", "b"), taint("a", "\x00b")}, {taint("1:a", "b"), taint("1", ":a1:b")}} {
		c, differs := NewObjectChange(BootstrapConfig, spec(pair[0]), spec(pair[1]))
		require.True(t, differs)
		require.Len(t, c.Fields, 2, "one goes and another one comes")
	}
	long := config(t, "")
	long.Value = map[string]any{"files": []any{map[string]any{"path": "/" + string(make([]byte, maxKey))}}}
	c, _ := NewObjectChange(BootstrapConfig, config(t, `{"files":[]}`), long)
	require.Equal(t, []string{"Changed spec.files"}, paths(c.Fields))
}
