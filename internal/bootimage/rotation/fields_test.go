package rotation

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

func TestBring(t *testing.T) {
	for name, tc := range map[string]struct {
		spec, path string
		value      refitv1.BootImageValue
		want, err  string
	}{
		"a field":                       {`{"image":"a","b":1}`, "image", refitv1.ImageValue, `{"image":"77","b":1}`, ""},
		"a field by default":            {`{"image":"a"}`, "image", "", `{"image":"77"}`, ""},
		"one that is not there":         {`{}`, "ami.id", refitv1.ImageValue, `{"ami":{"id":"77"}}`, ""},
		"null":                          {`{"ami":null}`, "ami.id", refitv1.ImageValue, `{"ami":{"id":"77"}}`, ""},
		"a number stays one":            {`{"templateID":5}`, "templateID", refitv1.ImageValue, `{"templateID":77}`, ""},
		"the sha256":                    {`{}`, "sum", refitv1.SHA256Value, `{"sum":"` + sum + `"}`, ""},
		"items that have it":            {`{"v":[{"d":{"image":"a"}},{"e":1},{"d":{}}]}`, "v.d.image", refitv1.ImageValue, `{"v":[{"d":{"image":"77"}},{"e":1},{"d":{}}]}`, ""},
		"no item that has it":           {`{"v":[{"e":1}]}`, "v.d.image", refitv1.ImageValue, "", "none of the list's items has it"},
		"an empty list":                 {`{"v":[]}`, "v.d", refitv1.ImageValue, "", "none of the list's items has it"},
		"a number that does not come":   {`{"templateID":5}`, "templateID", refitv1.SHA256Value, "", "it holds a number"},
		"a mapping":                     {`{"image":{"id":"a"}}`, "image", refitv1.ImageValue, "", "it holds a mapping"},
		"a list":                        {`{"image":["a"]}`, "image", refitv1.ImageValue, "", "it holds a list"},
		"a boolean":                     {`{"image":true}`, "image", refitv1.ImageValue, "", "it holds a boolean"},
		"through text":                  {`{"image":"a"}`, "image.url", refitv1.ImageValue, "", "what should have url in it is a text"},
		"what the stream does not tell": {`{}`, "r", refitv1.ReleaseValue, "", "does not tell the Release"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{}
			require.NoError(t, o.UnmarshalJSON([]byte(`{"apiVersion":"a/v1","kind":"K","spec":`+tc.spec+`}`)))
			spec, _ := o.Object["spec"].(map[string]any)
			err := bring(spec, []refitv1.BootImageField{{Path: tc.path, Value: tc.value}}, Golden{Image: "77", SHA256: sum})
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			got, err := json.Marshal(spec)
			require.NoError(t, err)
			require.JSONEq(t, tc.want, string(got))
		})
	}
}

func TestSurges(t *testing.T) {
	strategy := func(key string, value any) func(*unstructured.Unstructured) {
		return field(object{"type": "RollingUpdate", "rollingUpdate": object{key: value}}, "spec", "rollout", "strategy")
	}
	none := func(o *unstructured.Unstructured) { unstructured.RemoveNestedField(o.Object, "spec", "rollout") }
	workers, cp := func(edits ...func(*unstructured.Unstructured)) *target {
		return &target{family: deployments, object: with(deployment("workers", "K", "t"), edits...)}
	}, func(edit func(*unstructured.Unstructured)) *target {
		return &target{family: controlPlanes, object: with(controlPlane("t"), edit)}
	}
	for name, tc := range map[string]struct {
		target *target
		want   bool
	}{
		"by default":                          {workers(none), true},
		"one may be unavailable":              {workers(strategy("maxUnavailable", int64(1))), false},
		"half of two may be unavailable":      {workers(strategy("maxUnavailable", "50%")), false},
		"a part of one may be unavailable":    {workers(strategy("maxUnavailable", "10%")), true},
		"none may be more":                    {workers(strategy("maxSurge", int64(0))), false},
		"what can't be read is the default":   {workers(strategy("maxUnavailable", "many")), true},
		"there are no machines":               {workers(none, field(int64(0), "spec", "replicas")), false},
		"one by default":                      {workers(strategy("maxUnavailable", "99%"), func(o *unstructured.Unstructured) { unstructured.RemoveNestedField(o.Object, "spec", "replicas") }), true},
		"a control plane by default":          {cp(none), true},
		"a control plane, one more":           {cp(strategy("maxSurge", int64(1))), true},
		"a control plane, none more":          {cp(strategy("maxSurge", int64(0))), false},
		"a control plane, none more, as text": {cp(strategy("maxSurge", "0")), false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, tc.target.surges() != "", tc.target.surges()) })
	}
}

func TestNames(t *testing.T) {
	long := ""
	for len(long) < 250 {
		long += "abc-."
	}
	spec := map[string]any{"a": 1}
	name, err := nameFor(long, spec)
	require.NoError(t, err)
	require.LessOrEqual(t, len(name), 253)
	require.Regexp(t, `[a-z]-[0-9a-f]{10}$`, name)
	again, err := nameFor(long, map[string]any{"a": 1})
	require.NoError(t, err)
	require.Equal(t, name, again)
	other, err := nameFor(long, map[string]any{"a": 2})
	require.NoError(t, err)
	require.NotEqual(t, name, other)
}
