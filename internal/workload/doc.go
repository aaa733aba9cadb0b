// Package workload reaches the API servers of workload clusters.
//
// Refit can be given rights of its own in a workload cluster: a kubeconfig in the Secret <cluster>-refit-kubeconfig of the
// Cluster's namespace. Where there is none, Cluster API's ClusterCache is asked, which has the administrator's.
package workload
