package inert

import (
	"slices"

	"github.com/capi-refit/refit/internal/fieldset"
)

// Verdict is what becomes of the change of a field.
type Verdict string

// The verdicts.
const (
	// NoAction: the field means nothing to a node that runs, so a change of it is made by being in the object.
	NoAction Verdict = "NoAction"
	// FutureOnly: the field means nothing to a node that runs, but whoever changes it may well want the running nodes changed.
	// It is claimed by opt-in.
	FutureOnly Verdict = "FutureOnly"
	// Never: the field is not changed on a node that runs.
	Never Verdict = "Never"
)

// Entry is what is known about a field.
type Entry struct {
	Object fieldset.Object
	// Path is the names of the fields that lead to the field, with dots between them. Items of lists have none. Empty: the spec.
	Path    string
	Verdict Verdict
	// Why is shown to people: the reason why the field is left or, of one that takes no action, why it takes none.
	Why string
	// Below has the entry hold for all that is below the field as well, whatever a later version adds there. Entries with the
	// verdict Never always do.
	Below bool
}

const (
	atJoin      = "it only matters while kubeadm makes a node"
	issued      = "certificates that were issued stay as they are; those that are made from now on have it, by the next renewal or for a new machine"
	wholeMember = "the control plane of a node does not move to another address; a new machine gets it"
	future      = "it takes effect when a machine is made, so the running node would be left as it is; " + byOptIn
	byOptIn     = "if that is meant, set futureOnlyFields: Allow in a NodeDisruptionPolicy"
)

// Table returns what is known, in order.
func Table() []Entry { return slices.Clone(table) }

var table = slices.Concat(
	ofMachines(), ofBoot(), ofCluster(),
	ofKubeadm("initConfiguration"), ofKubeadm("joinConfiguration"),
	[]Entry{
		config("initConfiguration.bootstrapTokens", NoAction, "the tokens are made when the cluster is"),
		config("initConfiguration.localAPIEndpoint", Never, wholeMember),
		config("joinConfiguration.controlPlane", Never, "a worker does not become a control-plane node or the other way round, and "+wholeMember),
		config("joinConfiguration.caCertPath", Never, "the kubelet goes on reading the certificate where it was when the node joined"),
		{
			Object: fieldset.BootstrapConfig, Path: "joinConfiguration.discovery", Verdict: NoAction, Below: true,
			Why: "a node that has joined has no use for it, and Cluster API changes it by itself",
		},
	},
)

func config(path string, v Verdict, why string) Entry {
	return Entry{Object: fieldset.BootstrapConfig, Path: path, Verdict: v, Why: why}
}

// futureOnly is an entry for a field and all below it, for machines that are made later.
func futureOnly(path, why string) Entry {
	return Entry{Object: fieldset.BootstrapConfig, Path: path, Verdict: FutureOnly, Why: why, Below: true}
}

func ofMachines() []Entry {
	return []Entry{
		{Object: fieldset.Machine, Path: "failureDomain", Verdict: Never, Why: "a machine does not move to another failure domain"},
		{
			Object: fieldset.InfrastructureMachine, Verdict: Never,
			Why: "of infrastructure machines only declared fields, and images by a BootImagePolicy, can be changed without touching the node; " +
				"if this one takes nothing on it, list it in inertFields of a NodeDisruptionPolicy",
		},
	}
}

func ofBoot() []Entry {
	const disks = "disks are partitioned and file systems made on a new machine only, so the running node would be left as it is; " + byOptIn
	return []Entry{
		config("preKubeadmCommands", FutureOnly, future),
		config("postKubeadmCommands", FutureOnly, future),
		config("bootCommands", FutureOnly, future),
		config("mounts", FutureOnly, future),
		futureOnly("diskSetup", disks),
		config("format", Never, "a machine can't be told in another format what it was told when it booted for the first time"),
		futureOnly("ignition", "Ignition runs once, before a new machine boots, so the running node would be left as it is; "+byOptIn),
		config("verbosity", NoAction, "kubeadm's own log, when it makes a node"),
		config("useExperimentalRetryJoin", NoAction, atJoin), // until v1beta1
	}
}

func ofCluster() []Entry {
	const identity = "it is the same for the whole life of a cluster"
	const etcd = "the data of a cluster does not move between etcds; make a new cluster"
	all := []Entry{
		config("clusterConfiguration.controlPlaneEndpoint", Never, identity+"; every node and every kubeconfig has it"),
		config("clusterConfiguration.certificatesDir", Never, "the static pods mount the directory in which the certificates were made"),
		config("clusterConfiguration.certificateValidityPeriodDays", NoAction, issued),
		config("clusterConfiguration.caCertificateValidityPeriodDays", NoAction, "the cluster's authorities were made with the cluster and stay as they are"),
		config("clusterConfiguration.encryptionAlgorithm", NoAction, issued),
		config("clusterConfiguration.etcd.external", Never, etcd),
		config("clusterConfiguration.etcd.local.dataDir", Never, "etcd's data does not move to another directory; a new machine gets it there"),
	}
	for _, f := range []string{"clusterName", "kubernetesVersion", "networking"} { // until v1beta1
		all = append(all, config("clusterConfiguration."+f, Never, identity))
	}
	for _, f := range []string{"imageRepository", "imageTag"} {
		all = append(all, config("clusterConfiguration.dns."+f, NoAction, "the KubeadmControlPlane updates CoreDNS in the cluster"))
	}
	return all
}

// ofKubeadm are the fields that kubeadm init and kubeadm join have in common.
func ofKubeadm(configuration string) []Entry {
	all := []Entry{
		config(configuration+".skipPhases", NoAction, atJoin),
		config(configuration+".nodeRegistration.name", Never, "a Node does not change its name"),
		config(configuration+".nodeRegistration.criSocket", Never, "pods do not move to another container runtime; a new machine gets it"),
		config(configuration+".nodeRegistration.ignorePreflightErrors", NoAction, atJoin),
		config(configuration+".nodeRegistration.imagePullPolicy", NoAction, "it is kubeadm's own, for the images that it pulls when it makes a node"),
		config(configuration+".nodeRegistration.imagePullSerial", NoAction, "it is kubeadm's own, for the images that it pulls when it makes a node"),
	}
	for _, t := range []string{
		"controlPlaneComponentHealthCheckSeconds", "kubeletHealthCheckSeconds", "kubernetesAPICallSeconds", "etcdAPICallSeconds",
		"tlsBootstrapSeconds", "discoverySeconds",
	} {
		all = append(all, config(configuration+".timeouts."+t, NoAction, "kubeadm's own, when it makes a node"))
	}
	return all
}
