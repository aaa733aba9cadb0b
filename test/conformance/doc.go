// Package conformance looks at Cluster API's reference extension as refit conformance does. Its tests, with the build tag e2e, need no cluster.
package conformance
