package node

// Version is the Kubernetes that a node is to run.
type Version struct {
	// Kubernetes is the version, for example "v1.36.3".
	Kubernetes string `json:"kubernetes"`
	// IgnorePreflightErrors are checks of kubeadm's whose errors the specs have it ignore.
	IgnorePreflightErrors []string `json:"ignorePreflightErrors,omitempty"`
	// PatchesDirectory is where on the node kubeadm finds patches of the static pods and of the kubelet's configuration.
	PatchesDirectory string `json:"patchesDirectory,omitempty"`
}

// Source is where the programs of one version of Kubernetes come from. Exactly one of Binaries, Archive, Directory, Packages and
// SystemExtension is set. In URLs and paths {version}, {arch} and {name} stand for the version ("v1.36.3"), the architecture in
// Go's words ("amd64"), and the name of a program ("kubelet").
type Source struct {
	// Name is that of the KubernetesSource, for messages.
	Name string `json:"name"`
	// Version is the one that the rest is about.
	Version         string           `json:"version"`
	Binaries        *Binaries        `json:"binaries,omitempty"`
	Archive         *Archive         `json:"archive,omitempty"`
	Directory       *Directory       `json:"directory,omitempty"`
	Packages        *Packages        `json:"packages,omitempty"`
	SystemExtension *SystemExtension `json:"systemExtension,omitempty"`
	Images          Images           `json:"images,omitzero"`
	// Checksums are the SHA-256 of what is fetched or read, without which it is not used. Packages are verified by their own
	// signatures instead.
	Checksums []Checksum `json:"checksums,omitempty"`
	// Proxy is an http or https URL by which URLs are fetched; NoProxy are hosts that are reached without it, in the form of the
	// variable NO_PROXY.
	Proxy   string `json:"proxy,omitempty"`
	NoProxy string `json:"noProxy,omitempty"`
}

// Binaries are programs by themselves: kubeadm, kubelet and kubectl.
type Binaries struct {
	// URL has {name} in it, and mostly {version} and {arch}. It is http or https.
	URL string `json:"url"`
}

// Archive is a tar archive, compressed by gzip or not, that has the programs in it, in whatever directory.
type Archive struct {
	URL string `json:"url"`
}

// Directory is on the node, and has the programs in it: somebody has put them there.
type Directory struct {
	Path string `json:"path"`
}

// PackageManager is a program that installs packages.
type PackageManager string

// The package managers.
const (
	APT PackageManager = "apt"
	DNF PackageManager = "dnf"
)

// Packages are those of the system.
type Packages struct {
	Manager PackageManager `json:"manager"`
	// Repository is the text of a list of apt's (deb822 or one line), or of a .repo file of dnf's, in which {version} and {minor}
	// ("v1.36") are replaced. Empty: the node has the repository already.
	Repository string `json:"repository,omitempty"`
	// Key is the public key, in ASCII armor, by which the repository is signed. In Repository {keyring} stands for where it is put.
	Key string `json:"key,omitempty"`
	// PackageVersion is a pattern for the version of the packages kubeadm, kubelet and kubectl, with shell wildcards, for example
	// "{number}-*", where {number} stands for "1.36.3".
	PackageVersion string `json:"packageVersion"`
}

// SystemExtension is an image of systemd-sysext with the programs in it.
type SystemExtension struct {
	URL string `json:"url"`
	// Name is that of the extension below /etc/extensions, without ".raw".
	Name string `json:"name"`
}

// Images say how the images of a control plane's pods, and those that every node needs, come to the node.
type Images struct {
	// Archives are URLs of image archives to import, as "ctr images import" takes them.
	Archives []string `json:"archives,omitempty"`
	// Pull has kubeadm pull those of the control plane from the registry that the cluster's configuration names.
	Pull bool `json:"pull,omitempty"`
}

// Checksum is that of one thing to fetch.
type Checksum struct {
	// Name is that of a program; of an archive, image archive or extension the last part of its URL's path.
	Name string `json:"name"`
	// Architecture is empty if it is the same for all.
	Architecture string `json:"architecture,omitempty"`
	// SHA256 is in hex.
	SHA256 string `json:"sha256"`
}

// StageRequest is what the agent reads on its stdin for stage.
type StageRequest struct {
	Protocol int       `json:"protocol"`
	Machine  MachineID `json:"machine"`
	// Source is where the release comes from.
	Source Source `json:"source"`
	// WaitSeconds is how long to wait for the end before answering. 0: not at all.
	WaitSeconds int `json:"waitSeconds,omitempty"`
}

// StageState is how far staging has come.
type StageState string

// The states of staging.
const (
	// Staging means that it is under way.
	Staging StageState = "Staging"
	// Staged means that all is on the node, verified.
	Staged StageState = "Staged"
	// StageFailed means that it has stopped. Asked again, it goes on where it was.
	StageFailed StageState = "Failed"
)

// StageStatus is how the staging of a version stands.
type StageStatus struct {
	State   StageState `json:"state"`
	Version string     `json:"version,omitempty"`
	// Message says what is under way, or why it failed and what to do. It contains no secrets.
	Message string `json:"message,omitempty"`
}
