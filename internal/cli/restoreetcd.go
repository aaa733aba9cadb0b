package cli

import "github.com/spf13/cobra"

const restoreEtcd = `Says how etcd is restored from a snapshot that refit has kept. refit does none of it: it takes a cluster back in time, which is for
people to decide.

refit keeps a snapshot on a control-plane node before it brings another version of Kubernetes there, or has etcd's image, arguments or
certificates changed: the last three are in /var/lib/refit/etcd, named after when they were taken (UTC) and their digest. They hold all
Secrets of the cluster.

As long as a majority of the members works, don't restore. Delete the Machine of the one that does not, and Cluster API makes a new one:

  kubectl delete machine -n NAMESPACE MACHINE

When the majority is lost, and the members' data with it:

1. Have nobody interfere, in the management cluster:

     kubectl patch cluster -n NAMESPACE CLUSTER --type=merge -p '{"spec":{"paused":true}}'

2. Choose a control-plane node and the newest snapshot on it that is whole (etcdutl comes with etcd's releases; take that of the version
   of the image in /etc/kubernetes/manifests/etcd.yaml):

     etcdutl snapshot status /var/lib/refit/etcd/SNAPSHOT.db -w table

   Copy it, and /etc/kubernetes/pki, to somewhere else.

3. On every control-plane node, stop the API server and etcd, and wait until both are gone (crictl ps):

     mkdir -p /root/stopped && mv /etc/kubernetes/manifests/{kube-apiserver,etcd}.yaml /root/stopped/

4. On the chosen node, put the snapshot in the place of the data. NAME and IP are --name and --initial-advertise-peer-urls in etcd.yaml.
   The revision is raised so that no controller takes what it sees for old:

     mv /var/lib/etcd /var/lib/etcd.before
     etcdutl snapshot restore /var/lib/refit/etcd/SNAPSHOT.db --data-dir /var/lib/etcd --name NAME \
       --initial-cluster NAME=https://IP:2380 --initial-advertise-peer-urls https://IP:2380 \
       --bump-revision 1000000000 --mark-compacted
     chmod 0700 /var/lib/etcd

5. On the chosen node only, start both again, and look:

     mv /root/stopped/{etcd,kube-apiserver}.yaml /etc/kubernetes/manifests/
     kubectl --kubeconfig /etc/kubernetes/admin.conf get --raw '/readyz?verbose'
     kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes,pods -A

   What was made after the snapshot is not there: Nodes, Secrets, PersistentVolumes whose disks exist nevertheless.

6. Let Cluster API go on, and have it make the other control-plane machines again, one after the other: their members are not in the
   restored cluster.

     kubectl patch cluster -n NAMESPACE CLUSTER --type=merge -p '{"spec":{"paused":false}}'
     kubectl delete machine -n NAMESPACE OTHER-MACHINE

7. refit's leases and markers in the workload cluster are as old as the snapshot. Updates that were under way look for themselves how
   far they are; refit status MACHINE shows it.`

func newRestoreEtcdCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "restore-etcd",
		Short: "Say how etcd is restored from a snapshot that refit has kept on a node",
		Long:  restoreEtcd,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}
