// Package kubeadm makes the images of machines that kubeadm turns into nodes of a cluster, for Cluster API's Docker provider:
// Debian with an init system, an SSH server, containerd, kubelet and kubeadm, and the images of the control plane. They stand
// in for kind's where no registry answers: everything comes out of Debian's packages and of programs that the caller has built.
package kubeadm
