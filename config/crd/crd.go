// Package crd has the CustomResourceDefinitions of refit's kinds.
package crd

import "embed"

// Bases has them as API servers get them.
//
//go:embed bases/*.yaml
var Bases embed.FS
