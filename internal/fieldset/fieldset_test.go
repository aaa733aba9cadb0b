package fieldset

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// config makes a KubeadmConfig's spec out of JSON.
func config(t require.TestingT, spec string) Spec {
	s := Spec{APIVersion: "bootstrap.cluster.x-k8s.io/v1beta2", Kind: "KubeadmConfig"}
	if spec == "" {
		return s
	}
	v, err := Decode([]byte(spec))
	require.NoError(t, err)
	s.Value = v
	return s
}

func paths(fields []Field) []string {
	var out []string
	for _, f := range fields {
		out = append(out, string(f.Operation)+" "+f.String())
	}
	return out
}

func all(fields []Field) *fieldpath.Set {
	set := fieldpath.NewSet()
	for _, f := range fields {
		set.Insert(f.Path)
	}
	return set
}

// within says of each field of a change whether it is in the set.
func within(c ObjectChange, set *fieldpath.Set) []bool {
	var covered []bool
	for _, f := range c.Fields {
		covered = append(covered, set.Has(f.Path))
	}
	return covered
}

func TestFields(t *testing.T) {
	for name, tc := range map[string]struct {
		current, desired string
		want             []string
	}{
		"equal specs have none": {`{"a":1,"files":[]}`, `{"files":[],"a":1}`, nil},
		"a file's content is a field of that file": {
			`{"files":[{"path":"/a","content":"1"},{"path":"/b","content":"1"}]}`,
			`{"files":[{"path":"/a","content":"1"},{"path":"/b","content":"2"}]}`,
			[]string{`Changed spec.files[path="/b"].content`},
		},
		"a file that comes or goes is one field": {
			`{"files":[{"path":"/a","content":"1","owner":"x"}]}`, `{"files":[{"path":"/b","content":"1"}]}`,
			[]string{`Removed spec.files[path="/a"]`, `Added spec.files[path="/b"]`},
		},
		"the first file": {`{}`, `{"files":[{"path":"/a"}]}`, []string{`Added spec.files[path="/a"]`}},
		"the order of files": {
			`{"files":[{"path":"/a"},{"path":"/b"}]}`, `{"files":[{"path":"/b"},{"path":"/a"}]}`,
			[]string{`Reordered spec.files`},
		},
		"two files with one path make the list one field": {
			`{"files":[{"path":"/a"}]}`, `{"files":[{"path":"/a"},{"path":"/a"}]}`, []string{`Changed spec.files`},
		},
		"a file without path makes the list one field": {`{"files":[{"path":"/a"}]}`, `{"files":[{}]}`, []string{`Changed spec.files`}},
		"other lists are one field":                    {`{"x":[{"path":"/a"}]}`, `{"x":[{"path":"/b"}]}`, []string{`Changed spec.x`}},
		"a mapping that comes is seen field by field":  {`{}`, `{"ntp":{"enabled":true,"servers":["a"]}}`, []string{`Added spec.ntp.enabled`, `Added spec.ntp.servers`}},
		"an empty mapping is not nothing":              {`{}`, `{"ntp":{}}`, []string{`Added spec.ntp`}},
		"an empty list is not nothing":                 {`{"files":[]}`, `{}`, []string{`Removed spec.files`}},
		"null is not nothing":                          {`{}`, `{"a":null}`, []string{`Added spec.a`}},
		"a number is not its text":                     {`{"a":1}`, `{"a":"1"}`, []string{`Changed spec.a`}},
		"arguments go by name": {
			`{"clusterConfiguration":{"apiServer":{"extraArgs":[{"name":"v","value":"1"}]}}}`,
			`{"clusterConfiguration":{"apiServer":{"extraArgs":[{"name":"v","value":"2"}]}}}`,
			[]string{`Changed spec.clusterConfiguration.apiServer.extraArgs[name="v"].value`},
		},
		"taints go by key and effect": {
			`{"joinConfiguration":{"nodeRegistration":{"taints":[{"key":"a","effect":"NoSchedule"}]}}}`,
			`{"joinConfiguration":{"nodeRegistration":{"taints":[{"key":"a","effect":"NoExecute"}]}}}`,
			[]string{
				`Removed spec.joinConfiguration.nodeRegistration.taints[effect="NoSchedule",key="a"]`,
				`Added spec.joinConfiguration.nodeRegistration.taints[effect="NoExecute",key="a"]`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, differs := NewObjectChange(BootstrapConfig, config(t, tc.current), config(t, tc.desired))
			require.Equal(t, tc.want != nil, differs)
			require.Equal(t, tc.want, paths(c.Fields))
		})
	}
}

func TestPatch(t *testing.T) {
	const (
		current = `{"files":[{"path":"/b","content":"1"},{"path":"/a","content":"1"},{"path":"/gone"}],"ntp":{"enabled":true}}`
		desired = `{"files":[{"path":"/new"},{"path":"/a","content":"2"},{"path":"/b","content":"2"}]}`
	)
	for name, tc := range map[string]struct {
		covered func(Field) bool
		want    string
	}{
		"nothing covered changes nothing": {func(Field) bool { return false }, current},
		"everything covered is desired":   {func(Field) bool { return true }, desired},
		"a list that is covered has desired's order": {
			func(f Field) bool { return *f.Path[0].FieldName == "files" },
			`{"files":[{"path":"/new"},{"path":"/a","content":"2"},{"path":"/b","content":"2"}],"ntp":{"enabled":true}}`,
		},
		"of a list that is covered in part, only that part changes": {
			func(f Field) bool {
				return f.String() == `spec.files[path="/a"].content` || f.String() == `spec.files[path="/gone"]`
			},
			`{"files":[{"path":"/b","content":"1"},{"path":"/a","content":"2"}],"ntp":{"enabled":true}}`,
		},
		"a mapping goes when all of it is covered": {
			func(f Field) bool { return *f.Path[0].FieldName == "ntp" },
			`{"files":[{"path":"/b","content":"1"},{"path":"/a","content":"1"},{"path":"/gone"}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := NewObjectChange(BootstrapConfig, config(t, current), config(t, desired))
			covered := fieldpath.NewSet()
			for _, f := range c.Fields {
				if tc.covered(f) {
					covered.Insert(f.Path)
				}
			}
			require.JSONEq(t, `{"spec":`+tc.want+`}`, string(patched(t, current, c, covered)))
		})
	}
}

// patched returns the object with the patch of the covered fields applied.
func patched(t require.TestingT, spec string, c ObjectChange, covered *fieldpath.Set) []byte {
	object := []byte(`{"spec":` + spec + `}`)
	patch, err := c.Patch("/spec", within(c, covered))
	require.NoError(t, err)
	if patch == nil {
		return object
	}
	out, err := ApplyPatch(object, patch)
	require.NoError(t, err)
	return out
}

// TestLaws takes any two specs and any part of what differs: after the patch, what differs is the other part.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		current, desired := specs().Draw(t, "current"), specs().Draw(t, "desired")
		c, differs := NewObjectChange(BootstrapConfig, config(t, current), config(t, desired))
		if !differs {
			require.JSONEq(t, current, desired)
			return
		}
		require.JSONEq(t, `{"spec":`+desired+`}`, string(patched(t, current, c, all(c.Fields))))

		covered, left := fieldpath.NewSet(), fieldpath.NewSet()
		for _, f := range c.Fields {
			if rapid.Bool().Draw(t, f.String()) {
				covered.Insert(f.Path)
			} else {
				left.Insert(f.Path)
			}
		}
		rest := remaining(t, patched(t, current, c, covered), desired)
		require.True(t, left.Equals(rest), "left %s, but %s differs", left, rest)
	})
}

func remaining(t require.TestingT, object []byte, desired string) *fieldpath.Set {
	var o struct {
		Spec json.RawMessage `json:"spec"`
	}
	require.NoError(t, json.Unmarshal(object, &o))
	c, _ := NewObjectChange(BootstrapConfig, config(t, string(o.Spec)), config(t, desired))
	return all(c.Fields)
}

// specs generates KubeadmConfig specs that collide often.
func specs() *rapid.Generator[string] {
	name := rapid.SampledFrom([]string{"a", "b", "files", "content", "~/x"})
	leafs := rapid.SampledFrom([]string{`1`, `2`, `"x"`, `""`, `null`, `true`, `[]`, `{}`, `[1,2]`})
	object := rapid.Custom(func(t *rapid.T) string {
		m := map[string]json.RawMessage{}
		for range rapid.IntRange(0, 3).Draw(t, "n") {
			m[name.Draw(t, "name")] = json.RawMessage(leafs.Draw(t, "leaf"))
		}
		b, err := json.Marshal(m)
		require.NoError(t, err)
		return string(b)
	})
	file := rapid.Custom(func(t *rapid.T) json.RawMessage {
		m := map[string]json.RawMessage{"path": json.RawMessage(rapid.SampledFrom([]string{`"/a"`, `"/b"`, `"/c"`, `"/d"`, `""`}).Draw(t, "path"))}
		if rapid.Bool().Draw(t, "content?") {
			m["content"] = json.RawMessage(leafs.Draw(t, "content"))
		}
		if rapid.Bool().Draw(t, "contentFrom?") {
			m["contentFrom"] = json.RawMessage(object.Draw(t, "contentFrom"))
		}
		b, err := json.Marshal(m)
		require.NoError(t, err)
		return b
	})
	return rapid.Custom(func(t *rapid.T) string {
		m := map[string]any{}
		if rapid.Bool().Draw(t, "files?") {
			m["files"] = rapid.SliceOfN(file, 0, 4).Draw(t, "files")
		}
		for _, k := range []string{"ntp", "users", "joinConfiguration"} {
			if rapid.Bool().Draw(t, k+"?") {
				m[k] = json.RawMessage(rapid.OneOf(object, leafs).Draw(t, k))
			}
		}
		b, err := json.Marshal(m)
		require.NoError(t, err)
		return string(b)
	})
}

// FuzzPatch takes any two specs: a patch that covers every field turns one into the other.
func FuzzPatch(f *testing.F) {
	f.Add(`{"files":[{"path":"/a","content":"1"}]}`, `{"files":[{"path":"/b"},{"path":"/a","content":"2"}],"ntp":{"enabled":true}}`)
	f.Add(`{"files":[{"path":"/a"},{"path":"/b"}]}`, `{"files":[{"path":"/b"},{"path":"/a"}]}`)
	f.Add(`{"a~/b":{"c":[]}}`, `{"a~/b":{}}`)
	f.Fuzz(func(t *testing.T, current, desired string) {
		cv, dv := canonical(current), canonical(desired)
		if cv == "" || dv == "" {
			return // a spec always is a mapping in JSON
		}
		c, differs := NewObjectChange(BootstrapConfig, config(t, cv), config(t, dv))
		if !differs {
			return
		}
		rest := remaining(t, patched(t, cv, c, all(c.Fields)), dv)
		require.True(t, rest.Empty(), "after the patch %s differs", rest)
	})
}

// canonical returns a mapping in JSON as the API server would write it, or nothing.
func canonical(s string) string {
	v, err := Decode([]byte(s))
	if _, ok := v.(map[string]any); err != nil || !ok {
		return ""
	}
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}

func TestDigest(t *testing.T) {
	digest := func(machine, bootstrap string) string {
		m, err := Decode([]byte(machine))
		require.NoError(t, err)
		d, err := Digest(map[Object]any{Machine: m, BootstrapConfig: config(t, bootstrap).Value})
		require.NoError(t, err)
		return d
	}
	base := digest(`{"version":"v1"}`, `{"joinConfiguration":{"nodeRegistration":{}}}`)
	for name, tc := range map[string]struct {
		machine, bootstrap string
		same               bool
	}{
		"another version":               {`{"version":"v2"}`, `{"joinConfiguration":{"nodeRegistration":{}}}`, false},
		"another bootstrap config":      {`{"version":"v1"}`, `{"joinConfiguration":{}}`, false},
		"a join token":                  {`{"version":"v1"}`, `{"joinConfiguration":{"nodeRegistration":{},"discovery":{"bootstrapToken":{"token":"a"}}}}`, true},
		"what is there and empty":       {`{"version":"v1","failureDomain":"","deletion":{},"newer":{"a":[],"b":null}}`, `{"joinConfiguration":{"nodeRegistration":{}}}`, true},
		"a field that is not known":     {`{"version":"v1","newer":{"a":false}}`, `{"joinConfiguration":{"nodeRegistration":{}}}`, false},
		"what is synced without update": {`{"version":"v1","providerID":"x","readinessGates":[],"deletion":{"nodeDrainTimeoutSeconds":1}}`, `{"joinConfiguration":{"nodeRegistration":{}}}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.same, base == digest(tc.machine, tc.bootstrap))
		})
	}
}
