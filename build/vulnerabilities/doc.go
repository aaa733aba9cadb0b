// Package vulnerabilities tests .ci/vulnerabilities, by which `make vulnerabilities` checks what is shipped.
package vulnerabilities
