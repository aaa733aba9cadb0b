// Package webhook serves runtime hooks over HTTPS: discovery, limits, request metrics, client certificates, and
// certificates for trying it out.
//
// It stands on controller-runtime's webhook server and not on Cluster API's exp/runtime/server, because that decodes
// requests into Go types before a handler sees them; docs/adr/0001 tells why that matters.
package webhook
