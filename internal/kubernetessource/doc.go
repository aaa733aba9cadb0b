// Package kubernetessource says, by the KubernetesSource that selects a Machine, where its versions of Kubernetes come from.
//
// Sources holds them as they were read last, on every replica: the hooks ask it whether a version can be had before they claim
// it, the reconciler asks it what a node is told. Status shows whether a source can be read.
//
// A source that can't be read, and more than one for the same Machine, are errors for the Machines that they select, and never a
// "no": that would replace machines.
package kubernetessource
