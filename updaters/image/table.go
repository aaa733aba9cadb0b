package image

import "slices"

// infrastructure is the API group of the infrastructure providers.
const infrastructure = "infrastructure.cluster.x-k8s.io"

// Kind names the fields of a kind of infrastructure machine that say what it boots from.
type Kind struct {
	// Group is the API group, without a version.
	Group string
	// Kind is that of the machine, not of its template: AWSMachine.
	Kind string
	// Paths are dotted and below spec, those first that say most about the image. Each stands for all that is below it. Items of
	// lists have no name: volumes.image is the image of every volume.
	Paths []string
}

// Table returns what is built in, in order. Whether a provider's webhook lets a field change is in declared.Forbidden.
func Table() []Kind { return slices.Clone(table) }

// table has the providers' kinds as read in their sources. Where the versions of a kind have different fields, all are there.
var table = []Kind{
	builtIn("AWSMachine", "ami", "imageLookupFormat", "imageLookupOrg", "imageLookupBaseOS"),
	builtIn("AzureMachine", "image"),
	builtIn("DevMachine", "backend.docker.customImage"),
	builtIn("DockerMachine", "customImage"),
	builtIn("GCPMachine", "image", "imageFamily"),
	builtIn("HCloudMachine", "imageName", "imageURL", "imageURLCommand"),
	builtIn("HetznerBareMetalMachine", "installImage.image"),
	builtIn("IBMPowerVSMachine", "image", "imageRef.name"),
	builtIn("IBMVPCMachine", "image", "catalogOffering"),
	builtIn("KubevirtMachine",
		"virtualMachineTemplate.spec.template.spec.volumes.containerDisk.image",
		"virtualMachineTemplate.spec.dataVolumeTemplates.spec.source"),
	// image.format has become image.diskFormat in v1beta2. image has nothing else in it.
	builtIn("Metal3Machine",
		"image.url", "image.checksum", "image.checksumType", "image.format", "image.diskFormat", "customDeploy.method"),
	builtIn("NutanixMachine", "image", "imageLookup"),
	builtIn("OpenStackMachine", "image"),
	builtIn("ProxmoxMachine", "templateID", "templateSelector", "sourceNode"),
	builtIn("VSphereMachine", "template", "snapshot"),
}

func builtIn(kind string, paths ...string) Kind {
	return Kind{Group: infrastructure, Kind: kind, Paths: paths}
}

// Paths returns the image fields of a kind: those that are built in, and then those that more adds, each once. A kind that is
// not known has none.
func Paths(group, kind string, more ...Kind) []string {
	var paths []string
	for _, k := range slices.Concat(table, more) {
		if k.Group != group || k.Kind != kind {
			continue
		}
		for _, p := range k.Paths {
			if !slices.Contains(paths, p) {
				paths = append(paths, p)
			}
		}
	}
	return paths
}
