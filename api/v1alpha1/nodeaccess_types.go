package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// NodeAccessSpec says how the nodes of the selected Machines are reached.
type NodeAccessSpec struct {
	// clusterName limits the selection to the Machines of one Cluster. Empty: all Clusters of the namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ClusterName string `json:"clusterName,omitempty"`

	// machineSelector limits the selection to Machines with these labels. Empty: all. A Machine must be selected by
	// exactly one NodeAccess; otherwise its update waits.
	// +optional
	MachineSelector metav1.LabelSelector `json:"machineSelector,omitzero"`

	// addressTypes are the types of the Machine's addresses to try, in order. They are not used for a Machine with the
	// annotation capi-refit.dev/address.
	// +optional
	// +listType=atomic
	// +kubebuilder:default={"InternalIP","ExternalIP","InternalDNS","Hostname"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	AddressTypes []clusterv1.MachineAddressType `json:"addressTypes,omitempty"`

	// addressCIDRs bounds the addresses that are connected to, for example 10.20.0.0/16. A name counts by the address that it leads to
	// when it is connected to, and not at all behind a jump host. The jump host's own address is not bounded. Empty: all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="must be a range of addresses such as 10.0.0.0/8 or 2001:db8::/32"
	AddressCIDRs []string `json:"addressCIDRs,omitempty"`

	// ssh says how to log in.
	// +required
	SSH SSHAccess `json:"ssh"`

	// agentDirectory is where the agent is put on the node, absolute or relative to the directory of the login. It must
	// be on a file system from which programs can be run. It, and each directory above it, must belong to root or to whom the
	// agent runs as, and be writable by nobody else.
	// +optional
	// +kubebuilder:default="/var/lib/refit/bin"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	AgentDirectory string `json:"agentDirectory,omitempty"`
}

// SSHMode says what refit runs on a node.
// +kubebuilder:validation:Enum=Shell;Gate
type SSHMode string

// The modes.
const (
	// SSHShell runs a shell, which verifies and runs the agent. The user must be root, or be allowed to run anything with sudo.
	SSHShell SSHMode = "Shell"
	// SSHGate speaks to the gate, refit-node gate, which the login must be bound to on the node. It takes signed agents only.
	SSHGate SSHMode = "Gate"
)

// SSHAccess says how to log in to a node.
// +kubebuilder:validation:XValidation:rule="!has(self.userCertificate) || !has(self.jumpHost) || !has(self.jumpHost.userCertificate) || self.userCertificate.caKeySecretRef.name != self.jumpHost.userCertificate.caKeySecretRef.name || (has(self.userCertificate.caKeySecretRef.key) ? self.userCertificate.caKeySecretRef.key : 'ssh-privatekey') != (has(self.jumpHost.userCertificate.caKeySecretRef.key) ? self.jumpHost.userCertificate.caKeySecretRef.key : 'ssh-privatekey')",message="the jump host needs an authority of its own: with the nodes' its certificates could forward connections on the nodes"
// +kubebuilder:validation:XValidation:rule="has(self.privateKeySecretRef) != has(self.userCertificate)",message="exactly one of privateKeySecretRef and userCertificate is needed"
// +kubebuilder:validation:XValidation:rule="!has(self.userCertificate) || !has(self.mode) || self.mode == 'Gate'",message="with userCertificate the mode is Gate: a certificate is bound to a command"
type SSHAccess struct {
	// user to log in as.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	User string `json:"user"`

	// port of the SSH server.
	// +optional
	// +kubebuilder:default=22
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// privateKeySecretRef is the Secret with the private key; its key is "ssh-privatekey" when none is named.
	// +optional
	PrivateKeySecretRef SecretKeyReference `json:"privateKeySecretRef,omitzero"`

	// userCertificate has refit sign a certificate for each connection, instead of using a key that lasts.
	// +optional
	UserCertificate UserCertificate `json:"userCertificate,omitzero"`

	// mode says what refit runs on the node: Shell, which is the default with privateKeySecretRef, or Gate, which is the only
	// one with userCertificate. In the mode Gate agentDirectory does not count, since the gate has a directory of its own.
	// +optional
	Mode SSHMode `json:"mode,omitempty"`

	// sudo reports that the user needs sudo, which must not ask for a password. In the mode Gate it counts for the command of
	// certificates only.
	// +optional
	Sudo bool `json:"sudo,omitempty"`

	// hostKeys says which host keys to trust. Connections with a key that is not trusted are refused.
	// +required
	HostKeys HostKeys `json:"hostKeys"`

	// jumpHost is the host through which nodes are reached, where they can't be reached directly.
	// +optional
	JumpHost *JumpHost `json:"jumpHost,omitempty"`
}

// JumpHost is a host through which nodes are reached.
// +kubebuilder:validation:XValidation:rule="has(self.privateKeySecretRef) != has(self.userCertificate)",message="exactly one of privateKeySecretRef and userCertificate is needed"
type JumpHost struct {
	// address of the jump host.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Address string `json:"address"`

	// port of the SSH server.
	// +optional
	// +kubebuilder:default=22
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// user to log in as.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	User string `json:"user"`

	// privateKeySecretRef is the Secret with the private key; its key is "ssh-privatekey" when none is named.
	// +optional
	PrivateKeySecretRef SecretKeyReference `json:"privateKeySecretRef,omitzero"`

	// userCertificate has refit sign a certificate for each connection, which can forward connections and do nothing else.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.forceCommand)",message="nothing is run on a jump host"
	UserCertificate UserCertificate `json:"userCertificate,omitzero"`

	// hostKeys says which host keys to trust. TrustOnFirstUse is not possible here: what is recorded is recorded for
	// each node.
	// +required
	// +kubebuilder:validation:XValidation:rule="self.policy != 'TrustOnFirstUse'",message="a jump host's key must be known: use Pinned or CertificateAuthority"
	HostKeys HostKeys `json:"hostKeys"`
}

// UserCertificate says how refit signs SSH user certificates. Each is for one connection, of a key that is made for it, and can be used
// for five minutes to log in as one principal and to run one command.
type UserCertificate struct {
	// caKeySecretRef is the Secret with the private key of the authority that nodes trust (TrustedUserCAKeys of sshd_config); its
	// key is "ssh-privatekey" when none is named.
	// +required
	CAKeySecretRef SecretKeyReference `json:"caKeySecretRef"`

	// principal of the certificates. Default: the user.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Principal string `json:"principal,omitempty"`

	// forceCommand is the command that certificates are bound to, which must be the node's gate. Default:
	// /usr/local/sbin/refit-node gate, with "sudo -n" ahead of it if sudo is set. Another one has the same form: an absolute path,
	// with "sudo -n" ahead of it or not, and "gate" as the last word.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(sudo -n )?/[a-zA-Z0-9_./-]+( [a-zA-Z0-9_./=:@,+-]+)* gate$`
	ForceCommand string `json:"forceCommand,omitempty"`

	// sourceAddresses are the addresses and networks, in CIDR notation, from which certificates can be used. Default: any.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || isCIDR(self) && cidr(self) == cidr(self).masked()",message="must be an address, or a network without bits behind the prefix, such as 10.20.0.0/16"
	SourceAddresses []string `json:"sourceAddresses,omitempty"`
}

// HostKeyPolicy says how a host key is found to be the right one.
// +kubebuilder:validation:Enum=Pinned;CertificateAuthority;TrustOnFirstUse
type HostKeyPolicy string

// The policies.
const (
	// HostKeyPinned takes the keys of a known_hosts file.
	HostKeyPinned HostKeyPolicy = "Pinned"
	// HostKeyCertificateAuthority takes keys that are signed by a certificate authority.
	HostKeyCertificateAuthority HostKeyPolicy = "CertificateAuthority"
	// HostKeyTrustOnFirstUse takes the first key that a node shows, records it in a KnownHost, and takes no other from
	// then on. Whoever can answer in the node's place at that first time is believed. The annotation capi-refit.dev/address is not
	// taken with it.
	HostKeyTrustOnFirstUse HostKeyPolicy = "TrustOnFirstUse"
)

// HostKeys says which host keys to trust.
// +kubebuilder:validation:XValidation:rule="(self.policy == 'TrustOnFirstUse') != has(self.secretRef)",message="secretRef is needed for Pinned and CertificateAuthority, and not possible for TrustOnFirstUse"
type HostKeys struct {
	// policy says how a host key is found to be the right one.
	// +required
	Policy HostKeyPolicy `json:"policy"`

	// secretRef is the Secret with what is trusted. For Pinned it is a known_hosts file, under the key "known_hosts" when
	// none is named; for CertificateAuthority the public keys of authorities, one a line, under "ca.pub".
	// +optional
	SecretRef *SecretKeyReference `json:"secretRef,omitempty"`
}

// SecretKeyReference is a key of a Secret in the same namespace.
type SecretKeyReference struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// key within the Secret.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// NodeAccess says how the nodes of the Machines in its namespace are reached.
//
// For example:
//
//	apiVersion: capi-refit.dev/v1alpha1
//	kind: NodeAccess
//	metadata: {name: all, namespace: fleet}
//	spec:
//	  clusterName: prod
//	  ssh:
//	    user: refit
//	    sudo: true
//	    privateKeySecretRef: {name: refit-ssh}
//	    hostKeys:
//	      policy: CertificateAuthority
//	      secretRef: {name: refit-host-ca}
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=nodeaccesses,shortName=na,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move="
// +kubebuilder:printcolumn:name="Cluster",type="string",JSONPath=".spec.clusterName"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Machines",type="integer",JSONPath=".status.machines"
// +kubebuilder:printcolumn:name="Unreachable",type="integer",JSONPath=".status.unreachable"
// +kubebuilder:printcolumn:name="User",type="string",JSONPath=".spec.ssh.user"
// +kubebuilder:printcolumn:name="Host keys",type="string",JSONPath=".spec.ssh.hostKeys.policy",priority=1
// +kubebuilder:printcolumn:name="Jump host",type="string",JSONPath=".spec.ssh.jumpHost.address",priority=1
// +kubebuilder:printcolumn:name="Message",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",priority=1
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type NodeAccess struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says how the nodes are reached.
	// +required
	Spec NodeAccessSpec `json:"spec"`

	// status is whether the nodes can be reached.
	// +optional
	Status NodeAccessStatus `json:"status,omitzero"`
}

// NodeAccessList is a list of NodeAccesses.
//
// +kubebuilder:object:root=true
type NodeAccessList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeAccess `json:"items"`
}
