// Package kubeadmphase has what kubeadm does when refit has it work on a control-plane node, by version of kubeadm: which feature gates
// act then, and which etcd it brings. Its source is kubeadm's: app/features/features.go, app/phases/upgrade/staticpods.go and
// app/constants/constants.go in cmd/kubeadm of Kubernetes 1.31 to 1.36.
//
// Refit runs "kubeadm upgrade node phase control-plane", and for another version of Kubernetes all of "kubeadm upgrade node". What kubeadm
// does only when it makes or joins a machine is not done again.
//
// The agent links this package, so of Kubernetes' libraries it needs only the one that compares versions.
package kubeadmphase
