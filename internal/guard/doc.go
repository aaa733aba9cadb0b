// Package guard looks at edits of Clusters, KubeadmControlPlanes and MachineDeployments before an API server stores them. One by which Cluster API would
// replace machines that a ChangeManagementPolicy protects is refused, or warned of, as the policy says.
//
// It is a first line. What Cluster API asks refit's hooks about is held back by them in any case: what the guard has not seen, and what it can't tell.
package guard
