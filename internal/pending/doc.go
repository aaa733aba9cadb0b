// Package pending shows what waits: which Machines a change will touch that was asked for, whether it is made in place or has them replaced, when
// policies let it start, and when the last would be done. What waits is derived from Cluster API's own conditions, so that it does not matter which
// replica a hook has asked. See docs/adr/0039-what-waits.md.
package pending
