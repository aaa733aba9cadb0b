// Package releases proves how releases of Kubernetes are brought to a node and installed, with the genuine apt, dnf and systemd-sysext on
// real Debian machines with systemd. Kubernetes' programs are stand-ins: scripts that say a version.
package releases
