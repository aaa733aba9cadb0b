package probe

import (
	"context"
	"errors"
	"fmt"

	"github.com/capi-refit/refit/internal/agent/host"
)

// The names of the probes of what the Node object says beside Ready. A kubelet that evicts all pods, or takes none, is Ready.
const (
	NodeMemory  = "the node's memory"
	NodeDisk    = "the node's disk"
	NodePIDs    = "the node's process IDs"
	NodeNetwork = "the node's network"
	NodeRoom    = "the node's room for pods"
)

// silent is an error that counts as ErrAbsent before a change: another probe tells it, or it is none of refit's business.
type silent struct{ error }

// Is reports whether target is ErrAbsent.
func (silent) Is(target error) bool { return target == ErrAbsent }

// shown is what the Node object shows. One answer is for all the probes that are asked one after the other.
type shown struct {
	root   host.Root
	status nodeStatus
	err    error
	told   map[string]bool // the probes that have had this answer
}

// nodeProbes returns the probes of what the Node object says beside Ready.
func nodeProbes(r host.Root) []Probe {
	s := &shown{root: r}
	network := s.probe(NodeNetwork, isNot("NetworkUnavailable"))
	network.Elsewhere = true // a cloud's controller or a network plugin says so
	return []Probe{
		s.probe(NodeMemory, isNot("MemoryPressure")),
		s.probe(NodeDisk, isNot("DiskPressure")),
		s.probe(NodePIDs, isNot("PIDPressure")),
		network,
		s.probe(NodeRoom, hasRoom),
	}
}

// probe returns a probe that works while nothing is wrong with the Node. What it has seen once counts until it sees something else: that the
// API server can't be asked is told by others, who may take longer to say so.
func (s *shown) probe(name string, wrong func(nodeStatus) error) Probe {
	seen := false
	return Probe{Name: name, Look: "kubectl describe node", timeout: askTimeout, ask: func(ctx context.Context) error {
		status, err := s.ask(ctx, name)
		switch {
		case err == nil:
			seen = true
			return wrong(status)
		case seen && !errors.Is(err, ErrAbsent):
			return nil
		}
		return silent{err}
	}}
}

func (s *shown) ask(ctx context.Context, name string) (nodeStatus, error) {
	if s.told == nil || s.told[name] {
		s.status, s.err = nodeOf(ctx, s.root)
		s.told = map[string]bool{}
	}
	s.told[name] = true
	return s.status, s.err
}

// nodeOf returns the status of the node's Node.
func nodeOf(ctx context.Context, r host.Root) (nodeStatus, error) {
	c, err := connect(r)
	if err != nil {
		return nodeStatus{}, err
	}
	name, err := c.NodeName()
	if err != nil {
		return nodeStatus{}, err
	}
	return statusOf(ctx, c, name)
}

// isNot returns an error if a condition is True. One that is Unknown says that the kubelet is not heard of, as Ready does.
func isNot(name string) func(nodeStatus) error {
	return func(status nodeStatus) error {
		for _, is := range status.Conditions {
			if is.Type == name && is.Status == "True" {
				return fmt.Errorf("%s of the Node is True: %s", name, host.Redact(is.Message))
			}
		}
		return nil
	}
}

// hasRoom returns an error if the Node takes no pods at all.
func hasRoom(status nodeStatus) error {
	switch status.Allocatable["pods"] {
	case "0":
		return errors.New("its allocatable pods are 0")
	case "":
		return ErrAbsent
	}
	return nil
}
