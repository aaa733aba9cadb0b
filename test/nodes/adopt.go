package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/capi-refit/refit/test/engine"
)

// AdoptOptions name machines that somebody else has made.
type AdoptOptions struct {
	// Engine runs the machines: each is a container of its name.
	Engine engine.Engine
	Names  []string
	// PrivateKey, in PEM, lets user User into all of them.
	PrivateKey []byte
	// Progress gets a line for each thing that takes time. Nil: nobody wants to know.
	Progress io.Writer
}

// Adopt returns a fleet of machines that run already, when all of them let us in, and sees to it that they come back from
// reboots. Stop leaves them alone; Add takes in one that came later.
func Adopt(ctx context.Context, o AdoptOptions) (*Fleet, error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	f := &Fleet{kind: Machines, key: o.PrivateKey}
	f.start = func(ctx context.Context, name string) (*Node, error) {
		c := container{engine: o.Engine, name: name}
		hostKey, err := c.exec(ctx, nil, "cat", "/etc/ssh/ssh_host_ed25519_key.pub")
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", name, err)
		}
		// Cluster API's provider lets a machine come back from one reboot only.
		if _, err := o.Engine.Run(ctx, nil, "update", firmware, name); err != nil {
			return nil, fmt.Errorf("node %s: let it come back from reboots: %w", name, err)
		}
		address, err := c.address(ctx)
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", name, err)
		}
		return &Node{name: name, fleet: f, machine: c, hostKey: strings.TrimSpace(string(hostKey)), address: address}, nil
	}
	if err := f.addAll(ctx, Options{Names: o.Names, Progress: o.Progress}); err != nil {
		return nil, errors.Join(err, f.Stop(context.WithoutCancel(ctx)))
	}
	return f, nil
}
