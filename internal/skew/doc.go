// Package skew has Kubernetes' version skew policy (https://kubernetes.io/releases/version-skew-policy): which versions the components
// of a cluster may run at the same time. It is pure: whoever asks has gathered the versions.
//
// What is on the same control-plane node goes up together: kubeadm brings the API server first, then the controller manager and the
// scheduler, which talk to that API server, and the kubelet last. So none of them is newer than the API server that it talks to, and of a
// control-plane node only the API server is compared with what runs elsewhere.
package skew
