// Package admin does what people ask of refit on the command line: hold a node and release it, see how updates stand, have an
// update that has failed tried again, or give it up.
//
// Everything goes by way of the API servers: annotations that refit's controller reads, and the node's lease. No server of
// refit needs to be there for a hold.
package admin
