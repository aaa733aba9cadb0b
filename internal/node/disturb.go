package node

import (
	"path"
	"slices"

	"github.com/capi-refit/refit/internal/disruption"
)

// Disturbs reports whether a plan disturbs the node. An action does, but for None; and so does what interrupts by itself: to say None of it
// is to leave the pods where they are, and no more.
func (p Plan) Disturbs() bool { return disruption.Disturbs(p.Actions) || p.Interrupts() }

// Interrupts reports whether a plan restarts, starts or stops something, or empties the node.
func (p Plan) Interrupts() bool {
	return disruption.Interrupts(p.Actions) || slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Switches || c.Interrupts() })
}

// Drains reports whether the pods leave the node before it is changed.
func (p Plan) Drains() bool { return disruption.Has(p.Actions, disruption.Drain) || p.Reboots() }

// Reboots reports whether the node reboots.
func (p Plan) Reboots() bool { return disruption.Has(p.Actions, disruption.Reboot) }

// Interrupts reports whether any change of the resource restarts something, whatever a policy says that it takes. The kubelet is restarted
// for another version, and it restarts the static pods whose manifests have changed.
func (r Ref) Interrupts() bool {
	switch r.Kind {
	case VersionKind, ControlPlaneKind:
		return true
	case FileKind:
		return path.Dir(r.Name) == disruption.StaticPods
	default:
		return false
	}
}
