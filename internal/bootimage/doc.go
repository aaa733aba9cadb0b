// Package bootimage says, by the BootImagePolicies that select a Machine, whether its boot image may change while it runs, and
// watches how old the images are from which machines have booted.
//
// Policies holds them as they were read last, on every replica: the hooks ask it what the updater of images goes by. In the
// leader, Recorder notes at each Machine once from which image it has booted, and Status shows how these images compare with what
// infrastructure machines name now, and with what a policy asks for.
//
// A policy that can't be read is an error for each change of an image of a Machine that it selects, and never a "no": that would
// replace machines. Infrastructure machines that something else than Cluster API controls are left alone, and reported.
package bootimage
