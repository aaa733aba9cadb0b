// Package rollback brings the objects of a Machine that Cluster API has updated in place to what its owner wants now.
//
// Cluster API asks nothing new of such a Machine: an owner that has changed its mind is heard only once the update is done. So
// refit writes what the owner would write, as it would write it: with the same field manager, by server-side apply. What others
// have set in these objects stays, such as providerIDs and discovery tokens; what a bad template has brought goes; and when the
// owner applies its next change the fields are still its own.
package rollback
