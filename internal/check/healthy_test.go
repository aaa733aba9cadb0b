package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-refit/refit/internal/managementtest"
)

// bad are the findings that say that something is wrong.
func bad(all []Finding) (out []Finding) {
	for _, one := range all {
		if one.Level != Good {
			out = append(out, one)
		}
	}
	return out
}

// TestNoFalseAlarm has installations in which all is well, though not as in most.
func TestNoFalseAlarm(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *fleet){
		"there were three shards, and there is one leader now": func(_ *testing.T, f *fleet) {
			old := f.lease.DeepCopy()
			old.Name, old.Labels = "refit-shard-1-of-3", map[string]string{"capi-refit.dev/shards": "3"}
			old.Spec.HolderIdentity, old.Spec.RenewTime = new(""), new(metav1.NewMicroTime(managementtest.Start.Add(-48*time.Hour)))
			f.more = append(f.more, old)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			change(t, f)
			require.Empty(t, bad(f.run()))
		})
	}
}
