package controlplane

import "context"

// Bearable returns an error unless etcd bears a restart of this node's member. One that is not well takes nothing from the others when it
// is restarted: that is how it comes back after a change that it did not bear.
func (p *Pods) Bearable(ctx context.Context) error {
	member, err := p.kind.member(p.shown)
	if err != nil {
		return err
	}
	if member.Healthy(ctx) != nil {
		return nil
	}
	return member.Spare(ctx)
}
