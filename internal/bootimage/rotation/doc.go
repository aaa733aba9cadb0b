// Package rotation keeps the machine templates of MachineDeployments and KubeadmControlPlanes at a golden image, where a
// BootImagePolicy asks for it.
//
// Machine templates do not change. So it makes a new one, a copy with the image in it, and has the target refer to it. Before it
// does, it asks the updaters what Cluster API's hooks would be answered about that very difference: a target of which machines
// would be replaced is left as it is, unless the policy lets them be.
//
// Every step can be repeated: the name of a template follows from what is in it, and how often a target was brought to an image is
// written by the same patch that brings it there. Who sets a target back is given way to in the end.
package rotation
