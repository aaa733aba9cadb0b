package node

import "fmt"

// Kind is a kind of resource.
type Kind string

// The kinds of resources.
const (
	FileKind         Kind = "File"
	UnitKind         Kind = "Unit"
	NTPKind          Kind = "NTP"
	UserKind         Kind = "User"
	KubeletKind      Kind = "Kubelet"
	ControlPlaneKind Kind = "ControlPlane"
	VersionKind      Kind = "Version"
	// KubeletConfigKind is the file of the kubelet's configuration, as kubeadm writes it.
	KubeletConfigKind Kind = "KubeletConfig"
)

// Ref names a resource on a node.
type Ref struct {
	Kind Kind `json:"kind"`
	// Name is the path of a file, or the name of a unit or user. It is empty for kinds of which a node has one.
	Name string `json:"name,omitempty"`
}

// FileRef names a file.
func FileRef(path string) Ref { return Ref{Kind: FileKind, Name: path} }

// String returns the name as people read it, for example "/etc/motd", "user alice" or "kubelet arguments".
func (r Ref) String() string {
	switch r.Kind {
	case FileKind:
		return r.Name
	case UnitKind:
		return "unit " + r.Name
	case UserKind:
		return "user " + r.Name
	case NTPKind:
		return "time synchronization"
	case KubeletKind:
		return "kubelet arguments"
	case KubeletConfigKind:
		return "kubelet configuration"
	case ControlPlaneKind:
		return "control plane"
	case VersionKind:
		return "Kubernetes version"
	default:
		return fmt.Sprintf("%s %s", r.Kind, r.Name)
	}
}

// Resource is one thing that is wanted on a node. Exactly one member is set.
type Resource struct {
	File         *File         `json:"file,omitempty"`
	Unit         *Unit         `json:"unit,omitempty"`
	NTP          *NTP          `json:"ntp,omitempty"`
	User         *User         `json:"user,omitempty"`
	Kubelet      *Kubelet      `json:"kubelet,omitempty"`
	ControlPlane *ControlPlane `json:"controlPlane,omitempty"`
	Version      *Version      `json:"version,omitempty"`
	// KubeletConfig is made by kubeadm, out of the cluster's and the patches on the node.
	KubeletConfig *KubeletConfig `json:"kubeletConfig,omitempty"`
}

// Ref returns the name of the resource, or false if not exactly one member is set.
func (r Resource) Ref() (Ref, bool) {
	var refs []Ref
	if r.File != nil {
		refs = append(refs, FileRef(r.File.Path))
	}
	if r.Unit != nil {
		refs = append(refs, Ref{UnitKind, r.Unit.Name})
	}
	if r.NTP != nil {
		refs = append(refs, Ref{Kind: NTPKind})
	}
	if r.User != nil {
		refs = append(refs, Ref{UserKind, r.User.Name})
	}
	if r.Kubelet != nil {
		refs = append(refs, Ref{Kind: KubeletKind})
	}
	if r.ControlPlane != nil {
		refs = append(refs, Ref{Kind: ControlPlaneKind})
	}
	if r.Version != nil {
		refs = append(refs, Ref{Kind: VersionKind})
	}
	if r.KubeletConfig != nil {
		refs = append(refs, Ref{Kind: KubeletConfigKind})
	}
	if len(refs) != 1 {
		return Ref{}, false
	}
	return refs[0], true
}

// Unit is the state of a systemd unit. What is nil is left as it is.
type Unit struct {
	Name string `json:"name"`
	// Enabled reports whether the unit starts with the node.
	Enabled *bool `json:"enabled,omitempty"`
	// Active reports whether the unit runs.
	Active *bool `json:"active,omitempty"`
	// Masked reports whether the unit can't be started at all.
	Masked *bool `json:"masked,omitempty"`
	// File is the path of the unit's file, for a unit that comes with a file of the specs. It is enabled when that file brings it to a node
	// that does not have the unit, and disabled when the file goes. In a unit that the node has already, nothing is changed. Empty: the state
	// of the unit is wanted whoever brings the unit.
	File string `json:"file,omitempty"`
}

// NTP is how the node keeps its time. Which program does it, systemd-timesyncd or chrony, is the node's.
type NTP struct {
	// Enabled reports whether the program runs, now and after a boot.
	Enabled bool `json:"enabled"`
	// Servers are asked for the time. Empty: those that the node comes with.
	Servers []string `json:"servers,omitempty"`
}

// User is an account on the node. What is nil or empty is left as the node makes it.
type User struct {
	Name string `json:"name"`
	// Gecos is the comment of the account.
	Gecos string `json:"gecos,omitempty"`
	// Groups are the supplementary groups. They are those and no others once the specs have listed any.
	Groups []string `json:"groups,omitempty"`
	// HomeDir and PrimaryGroup count when the account is made; they are never changed.
	HomeDir      string `json:"homeDir,omitempty"`
	PrimaryGroup string `json:"primaryGroup,omitempty"`
	Shell        string `json:"shell,omitempty"`
	// PasswordHash is in the form of /etc/shadow.
	PasswordHash string `json:"passwordHash,omitempty"`
	// LockPassword reports whether one can't log in by password. Nil: true, as cloud-init has it.
	LockPassword *bool `json:"lockPassword,omitempty"`
	// Inactive reports whether nobody can log in to the account.
	Inactive bool `json:"inactive,omitempty"`
	// Sudo is the part of a sudoers rule after the user's name, for example "ALL=(ALL) NOPASSWD:ALL".
	Sudo string `json:"sudo,omitempty"`
	// SSHAuthorizedKeys are the lines of authorized_keys that are refit's to add and to take away.
	SSHAuthorizedKeys []string `json:"sshAuthorizedKeys,omitempty"`
	// Unmanaged reports that the specs name the user, but that it is not made in place: it is left as it is.
	Unmanaged bool `json:"unmanaged,omitempty"`
}

// Kubelet is what the specs tell the kubelet on its command line, beside what kubeadm does.
type Kubelet struct {
	// ExtraArgs in the order of the specs; a name can come more than once.
	ExtraArgs []Arg `json:"extraArgs,omitempty"`
}

// KubeletConfig is what the specs say about the kubelet's configuration.
type KubeletConfig struct {
	// PatchesDirectory is where on the node kubeadm finds patches of it, among those of static pods.
	PatchesDirectory string `json:"patchesDirectory,omitempty"`
}

// Arg is an argument of a program, without the dashes.
type Arg struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// ControlPlane is what the specs say about the static pods of a control-plane node.
type ControlPlane struct {
	APIServer         Component `json:"apiServer,omitzero"`
	ControllerManager Component `json:"controllerManager,omitzero"`
	Scheduler         Component `json:"scheduler,omitzero"`
	// Etcd is nil when etcd does not run on the control-plane nodes.
	Etcd *Component `json:"etcd,omitempty"`
	// CertSANs are names and addresses in the API server's certificate beside those that kubeadm puts there.
	CertSANs []string `json:"certSANs,omitempty"`
	// FeatureGates are kubeadm's own.
	FeatureGates    map[string]bool `json:"featureGates,omitempty"`
	ImageRepository string          `json:"imageRepository,omitempty"`
	// PatchesDirectory is where on the node kubeadm finds patches of the static pods.
	PatchesDirectory string `json:"patchesDirectory,omitempty"`
}

// Component is what the specs say about one static pod beside what kubeadm does.
type Component struct {
	ExtraArgs    []Arg         `json:"extraArgs,omitempty"`
	ExtraEnvs    []Env         `json:"extraEnvs,omitempty"`
	ExtraVolumes []ExtraVolume `json:"extraVolumes,omitempty"`
	// ImageRepository and those below are etcd's only.
	ImageRepository string `json:"imageRepository,omitempty"`
	ImageTag        string `json:"imageTag,omitempty"`
	// ServerCertSANs and PeerCertSANs are names and addresses in its certificates beside those that kubeadm puts there.
	ServerCertSANs []string `json:"serverCertSANs,omitempty"`
	PeerCertSANs   []string `json:"peerCertSANs,omitempty"`
}

// Env is a variable of a program's environment.
type Env struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// ExtraVolume is a file or directory of the node in a static pod.
type ExtraVolume struct {
	Name      string `json:"name"`
	HostPath  string `json:"hostPath"`
	MountPath string `json:"mountPath"`
	ReadOnly  bool   `json:"readOnly,omitempty"`
	PathType  string `json:"pathType,omitempty"`
}

// Login is how the server comes in to the node.
type Login struct {
	// User is the account. Empty: root.
	User string `json:"user,omitempty"`
	// Keys are the public keys of which it takes any one, in the form of authorized_keys. One can be that of the authority by whose
	// certificates it comes in.
	Keys []string `json:"keys,omitempty"`
	// Gate reports that it runs nothing but the gate, refit-node gate.
	Gate bool `json:"gate,omitempty"`
	// Command is what its certificates are bound to, which is the gate. Empty: the server does not know it.
	Command string `json:"command,omitempty"`
}
