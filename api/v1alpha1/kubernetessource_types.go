package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Staging is when a version of Kubernetes is brought to a node's disk.
// +kubebuilder:validation:Enum=Early;InWindow
type Staging string

// When a version of Kubernetes is brought to a node's disk.
const (
	// EarlyStaging: as soon as a change asks for it. It disturbs nothing, so it waits for no window and no drain.
	EarlyStaging Staging = "Early"
	// InWindowStaging: not before the window is open.
	InWindowStaging Staging = "InWindow"
)

// SourceURL is an http or https URL without a login. {version} stands for the version, such as v1.36.3, {arch} for the node's
// architecture, such as amd64, and {name} for the name of a program, such as kubelet.
// +kubebuilder:validation:MinLength=10
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:Pattern=`^https?://[A-Za-z0-9.:\[\]-]+/([^\s{}@"'\\]|\{version\}|\{arch\}|\{name\})+$`
type SourceURL string

// BinariesSource are programs by themselves: kubeadm, kubelet and kubectl.
type BinariesSource struct {
	// url of a program, with {name} in it. Each version needs a checksum for each program.
	// +required
	// +kubebuilder:validation:XValidation:rule="self.contains('{name}')",message="url has {name} where the name of the program is"
	URL SourceURL `json:"url"`
}

// ArchiveSource is a tar archive, compressed by gzip or not, that has kubeadm, kubelet and kubectl in it, in whatever directory.
type ArchiveSource struct {
	// url of the archive. Each version needs a checksum with the last part of the URL's path as its name.
	// +required
	// +kubebuilder:validation:XValidation:rule="!self.contains('{name}')",message="an archive has all programs in it, so there is no {name}"
	URL SourceURL `json:"url"`
}

// DirectorySource is on the node: somebody has put kubeadm, kubelet and kubectl there.
type DirectorySource struct {
	// path of the directory, absolute; {version} and {arch} are replaced as in URLs. Each version needs a checksum for each program.
	// +required
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^/([^\x00-\x1f\x7f{}]|\{version\}|\{arch\})+$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('//') && !self.endsWith('/')",message="path must be clean: neither // nor a / at the end"
	// +kubebuilder:validation:XValidation:rule="!(self + '/').contains('/./') && !(self + '/').contains('/../')",message="path must be clean: neither . nor .. in it"
	Path string `json:"path"`
}

// PackageManager is a program that installs packages.
// +kubebuilder:validation:Enum=apt;dnf
type PackageManager string

// The package managers.
const (
	APTPackages PackageManager = "apt"
	DNFPackages PackageManager = "dnf"
)

// PackagesSource are the packages kubeadm, kubelet and kubectl of the node's system. They are verified by their own signatures.
type PackagesSource struct {
	// manager that installs them.
	// +required
	Manager PackageManager `json:"manager"`

	// repository is the text of a list of apt's (deb822 or one line), or of a .repo file of dnf's. In it {version} stands for the
	// version, {minor} for v1.36 of it, and {keyring} for where the key is put. Empty: the node has the repository already.
	// A login has no place in it: whoever can read the source can read it. Only options are possible that weaken no verification;
	// with others the source is not Ready, and a node does not use it.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.lowerAscii().matches('(trusted|allow-insecure|allow-weak|allow-downgrade-to-insecure)[[:space:]]*[=:]')",message="packages need a signature: leave trusted and allow-insecure, allow-weak and allow-downgrade-to-insecure out"
	// +kubebuilder:validation:XValidation:rule="!self.matches('://[^/[:space:]]*@')",message="a URL of the repository has a login in it; whoever can read this object can read it"
	Repository string `json:"repository,omitempty"`

	// key is the public key, in ASCII armor, by which the repository is signed.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:XValidation:rule="self.contains('-----BEGIN PGP PUBLIC KEY BLOCK-----')",message="key is a public key in ASCII armor: -----BEGIN PGP PUBLIC KEY BLOCK-----"
	Key string `json:"key,omitempty"`

	// packageVersion is a pattern for the version of the packages, with the wildcards of a shell, such as {number}-*; {number}
	// stands for 1.36.3, and {version} for v1.36.3.
	// +optional
	// +kubebuilder:default="{number}-*"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9.+~:*?_-]|\{number\}|\{version\})+$`
	// +kubebuilder:validation:XValidation:rule="self.contains('{number}') || self.contains('{version}')",message="packageVersion has {number} or {version} in it"
	PackageVersion string `json:"packageVersion,omitempty"`
}

// SystemExtensionSource is an image of systemd-sysext with kubeadm, kubelet and kubectl in it.
type SystemExtensionSource struct {
	// url of the image. Each version needs a checksum with the last part of the URL's path as its name.
	// +required
	// +kubebuilder:validation:XValidation:rule="!self.contains('{name}')",message="an extension has all programs in it, so there is no {name}"
	URL SourceURL `json:"url"`

	// name of the extension below /etc/extensions, without .raw.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$`
	Name string `json:"name"`
}

// ImagesSource says how the images of the control plane's pods come to a node before they are needed.
type ImagesSource struct {
	// archives are URLs of image archives that the node's container runtime imports. Each version needs a checksum for each, with
	// the last part of the URL's path as its name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=20
	Archives []SourceURL `json:"archives,omitempty"`

	// pull has kubeadm pull the images of the control plane from the registry that the cluster's configuration names, while the
	// version is staged. Without it the kubelet pulls each of them when its pod starts.
	// +optional
	Pull bool `json:"pull,omitempty"`
}

// ProxySource is how a node gets to URLs.
type ProxySource struct {
	// url of the proxy, http or https, without a login.
	// +required
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[A-Za-z0-9.:\[\]-]+/?$`
	URL string `json:"url"`

	// noProxy are hosts, domains and networks that are reached without the proxy, as in the variable NO_PROXY.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9.:/*\[\]-]+$`
	NoProxy []string `json:"noProxy,omitempty"`
}

// SourceChecksum is the SHA-256 of one thing.
type SourceChecksum struct {
	// name of a program; of an archive, an image archive or an extension the last part of its URL's path.
	// +required
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._+~-]*$`
	Name string `json:"name"`

	// architecture that the checksum is for, such as amd64. Empty: it is the same for all.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+$`
	Architecture string `json:"architecture,omitempty"`

	// sha256 in hex, in small letters, as sha256sum prints it.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256"`
}

// SourceVersion is one version that the source has.
type SourceVersion struct {
	// version of Kubernetes, as spec.version of a Machine has it, such as v1.36.3.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`
	Version string `json:"version"`

	// checksums of all that is fetched or read for the version. What has none is not used.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Checksums []SourceChecksum `json:"checksums,omitempty"`
}

// KubernetesSourceSpec says where versions of Kubernetes come from. Exactly one of binaries, archive, directory, packages and
// systemExtension is set.
// +kubebuilder:validation:XValidation:rule="[has(self.binaries), has(self.archive), has(self.directory), has(self.packages), has(self.systemExtension)].exists_one(x, x)",message="exactly one of binaries, archive, directory, packages and systemExtension is set"
// +kubebuilder:validation:XValidation:rule="has(self.packages) || (has(self.versions) && size(self.versions) > 0)",message="versions names the versions that the source has, with their checksums; only packages do without"
// +kubebuilder:validation:XValidation:rule="has(self.packages) || !has(self.versions) || self.versions.all(v, has(v.checksums) && size(v.checksums) > 0)",message="each version needs checksums; only packages do without"
type KubernetesSourceSpec struct {
	// selector says which Machines of the namespace the source is for. Empty: all. A Machine that more than one source selects is
	// not brought to another version by any of them.
	// +optional
	Selector MachinesSelector `json:"selector,omitzero"`

	// staging says when a version is fetched and verified: with Early as soon as a change asks for it, before the maintenance
	// window and before the node is cordoned; with InWindow when the window is open.
	// +optional
	// +kubebuilder:default=Early
	Staging Staging `json:"staging,omitempty"`

	// binaries are programs by themselves.
	// +optional
	Binaries *BinariesSource `json:"binaries,omitempty"`

	// archive is a tar archive with the programs in it.
	// +optional
	Archive *ArchiveSource `json:"archive,omitempty"`

	// directory is on the node.
	// +optional
	Directory *DirectorySource `json:"directory,omitempty"`

	// packages are those of the node's system.
	// +optional
	Packages *PackagesSource `json:"packages,omitempty"`

	// systemExtension is an image of systemd-sysext with the programs in it.
	// +optional
	SystemExtension *SystemExtensionSource `json:"systemExtension,omitempty"`

	// images of the control plane's pods.
	// +optional
	Images ImagesSource `json:"images,omitzero"`

	// proxy by which the node gets to URLs. Empty: it gets there by itself.
	// +optional
	Proxy *ProxySource `json:"proxy,omitempty"`

	// versions that the source has. Of packages, none stands for all that the repository has.
	// +optional
	// +listType=map
	// +listMapKey=version
	// +kubebuilder:validation:MaxItems=50
	Versions []SourceVersion `json:"versions,omitempty"`

	// endOfLife says when minor versions end, also such as the source does not have any more. ChangeManagementPolicies may have a deadline by it.
	// +optional
	// +listType=map
	// +listMapKey=minor
	// +kubebuilder:validation:MaxItems=50
	EndOfLife []MinorEnd `json:"endOfLife,omitempty"`
}

// MinorEnd is when a minor version of Kubernetes ends.
type MinorEnd struct {
	// minor version, such as v1.34.
	// +required
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$`
	Minor string `json:"minor"`

	// date is the first day on which it is not supported any more, in UTC, such as 2026-10-28.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`
	Date string `json:"date"`
}

// KubernetesSourceStatus is what the source means now.
type KubernetesSourceStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// selectedMachines is how many Machines the source selects.
	// +optional
	SelectedMachines *int32 `json:"selectedMachines,omitempty"`

	// versions is how many versions the source names.
	// +optional
	Versions *int32 `json:"versions,omitempty"`

	// conditions of the source: Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// KubernetesSource says where the versions of Kubernetes come from to which the Machines that it selects are brought in place.
//
// For example:
//
//	apiVersion: capi-refit.dev/v1alpha1
//	kind: KubernetesSource
//	metadata: {name: mirror, namespace: fleet}
//	spec:
//	  selector:
//	    machines: {matchLabels: {os: ubuntu}}
//	  directory: {path: "/opt/kubernetes/{version}"}
//	  versions:
//	  - version: v1.36.3
//	    checksums:
//	    - {name: kubeadm, sha256: 612223e1497fdc9a85bfb92bfc9fb26c02cd58c3598d956d207386ea77ca1027}
//	    - {name: kubelet, sha256: 85354f49ffcbdcf1f00e8fa7631fbfd01805805f55357835f45c9156ba9dce6c}
//	    - {name: kubectl, sha256: 142a69700d59bd80e65dd21581be78614a9fd78d7c25a52585c6233670531891}
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=kubernetessources,shortName=ksrc,scope=Namespaced,categories=cluster-api
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io="
// +kubebuilder:metadata:labels="clusterctl.cluster.x-k8s.io/move="
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Versions",type="integer",JSONPath=".status.versions"
// +kubebuilder:printcolumn:name="Machines",type="integer",JSONPath=".status.selectedMachines"
// +kubebuilder:printcolumn:name="Staging",type="string",JSONPath=".spec.staging"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type KubernetesSource struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says where versions come from.
	// +required
	Spec KubernetesSourceSpec `json:"spec"`
	// status is what the source means now.
	// +optional
	Status KubernetesSourceStatus `json:"status,omitzero"`
}

// KubernetesSourceList is a list of KubernetesSources.
//
// +kubebuilder:object:root=true
type KubernetesSourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KubernetesSource `json:"items"`
}
