package declared

import "slices"

// infrastructure is the API group of the infrastructure providers.
const infrastructure = "infrastructure.cluster.x-k8s.io"

// webhook is what the webhook of a provider's machines lets change, in dotted paths below spec. One of the two is set:
// providers either list what may change and refuse the rest, or list what may not.
type webhook struct{ allows, forbids []string }

// webhooks are the machine webhooks of the providers, as read in their sources (ValidateUpdate of each kind). Where versions
// of a provider differ, what any of them forbids is forbidden: that an object can't be changed is found out by Cluster API
// when the machines of a MachineDeployment are already committed to the update.
//
// Kinds that are not here have no webhook that forbids changes (Metal3Machine), or one that nobody has read. Which fields name a
// machine's image is in updaters/image, which asks Forbidden whether they can change.
var webhooks = map[string]webhook{
	"AWSMachine": {allows: []string{
		"providerID", "instanceID", "additionalTags", "additionalSecurityGroups",
		"cloudInit.secretPrefix", "cloudInit.secretCount", "cloudInit.secureSecretsBackend",
		"privateDnsName.enableResourceNameDnsAAAARecord", "privateDnsName.enableResourceNameDnsARecord",
	}},
	"AzureMachine": {forbids: []string{
		"image", "identity", "systemAssignedIdentityRole", "userAssignedIdentities", "roleAssignmentName", "osDisk", "dataDisks",
		"sshPublicKey", "allocatePublicIP", "enableIPForwarding", "acceleratedNetworking", "spotVMOptions", "securityProfile",
		"diagnostics", "networkInterfaces", "capacityReservationGroupID", "disableExtensionOperations", "disableVMBootstrapExtension",
	}},
	"GCPMachine": {allows: []string{"providerID", "additionalLabels", "additionalNetworkTags"}},
	// The time-out has its unit in its name since v1beta2.
	"VSphereMachine": {allows: []string{
		"providerID", "powerOffMode", "guestSoftPowerOffTimeout", "guestSoftPowerOffTimeoutSeconds", "network.devices",
	}},
	// The newest version also allows ports' allowedAddressPairs. providerID and instanceID can be set once.
	"OpenStackMachine": {allows: []string{"identityRef"}},
	"HCloudMachine": {forbids: []string{
		"type", "imageName", "imageURL", "imageURLCommand", "sshKeys", "placementGroupName",
	}},
	"HetznerBareMetalMachine": {forbids: []string{"installImage", "sshSpec", "hostSelector"}},
	// Cluster API's test provider forbids it since v1.13.5.
	"DockerMachine": {forbids: []string{"customImage"}},
	"DevMachine":    {forbids: []string{"backend.docker.customImage"}},
	// It also has rules for networks, which can change within them.
	"ProxmoxMachine": {forbids: []string{"tags"}},
}

// Forbidden reports whether the provider's webhook refuses a change at a location, the names of the fields that lead to it below
// spec with list items left out, in machines of a kind. Of a kind whose webhook is not known it says no.
//
// It is for every updater that claims fields of infrastructure machines. KubeadmControlPlane finds out by itself, since
// Cluster API asks the webhook before it asks us; a MachineDeployment does not, and its machines would hang.
func Forbidden(group, kind string, location []string) bool {
	w, known := webhooks[kind]
	if !known || group != infrastructure {
		return false
	}
	if w.allows != nil {
		return !below(location, w.allows)
	}
	// What lies above a forbidden field has it in it.
	return below(location, w.forbids) || slices.ContainsFunc(w.forbids, func(f string) bool { return within(split(f), location) })
}
