// Package rollout says what an edit of what owns Machines means for them as Cluster API sees it: whether another version of a KubeadmControlPlane, a
// MachineDeployment or a Cluster's topology makes other machines, in what their specs differ, and how many machines come and go at once.
//
// It is pure: objects come in, and answers go out. Nothing here decides whether a change can be made in place.
package rollout
