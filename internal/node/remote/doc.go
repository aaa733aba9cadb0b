// Package remote reaches a node: over SSH, with host keys verified always, it brings the agent there and speaks to it.
package remote
