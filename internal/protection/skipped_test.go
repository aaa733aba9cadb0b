package protection

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestSkipsRemediation(t *testing.T) {
	const skip = clusterv1.MachineSkipRemediationAnnotation
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        bool
	}{
		"nothing":                               {nil, false},
		"somebody's":                            {map[string]string{skip: ""}, true},
		"somebody's, with refit's word":         {map[string]string{skip: owner}, true},
		"somebody's, and refit's hook":          {map[string]string{skip: owner, AddedAnnotation: "uid:" + preDrainHook}, true},
		"an update's":                           {map[string]string{skip: owner, AddedAnnotation: "uid:" + skip + "," + preDrainHook}, false},
		"a hold's":                              {map[string]string{skip: owner, HoldAddedAnnotation: "uid:" + holdHook + "," + skip}, false},
		"a record of refit's, and not its word": {map[string]string{skip: "kept", AddedAnnotation: "uid:" + skip}, true},
		"nobody can tell":                       {map[string]string{skip: owner, AddedAnnotation: "?"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{UID: types.UID("uid"), Annotations: tc.annotations}}
			require.Equal(t, tc.want, SkipsRemediation(m))
		})
	}
}
