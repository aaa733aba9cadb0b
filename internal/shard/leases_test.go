package shard

import (
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestElectionsAreThoseOfNow: Leases of shards stay when their number changes, and nobody holds them any more.
func TestElectionsAreThoseOfNow(t *testing.T) {
	lease := func(name, holder string) coordinationv1.Lease {
		return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "refit-system", Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	}
	former := []coordinationv1.Lease{lease(shardName(0, 3), ""), lease(shardName(1, 3), ""), lease(shardName(2, 3), ""), lease(memberName("a"), "a"), lease("another", "b")}
	for holder, want := range map[string][]string{
		"refit-a":                          {LeaderLease + " refit-a"},
		"":                                 {LeaderLease + " "},
		newDivision(nil, "", 2).Identity(): {LeaderLease + " replicas with --shards=2", "refit-shard-0-of-2 a", "refit-shard-1-of-2 "},
		"replicas with --shards=9999999":   {LeaderLease + " replicas with --shards=9999999"},
	} {
		all := append([]coordinationv1.Lease{lease(LeaderLease, holder), lease(shardName(0, 2), "a")}, former...)
		var got []string
		for _, l := range Elections(all) {
			require.Equal(t, "refit-system", l.Namespace)
			name := l.Name + " "
			if l.Spec.HolderIdentity != nil {
				name += *l.Spec.HolderIdentity
			}
			got = append(got, name)
		}
		require.Equal(t, want, got)
	}
	require.Empty(t, Elections(former))
}
