// Package updates proves each updater on real Debian machines with systemd: what it claims is what the node then plans, it is
// applied once, applied again without a change, reverted, broken on purpose, and rolled back to a node that works.
package updates
