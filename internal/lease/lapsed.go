package lease

import "context"

// UnholdLapsed ends an administrator's Hold whose time is over, as the lease itself says, so that one which was renewed since anybody
// looked stays. When the lease says that it is not, over is asked whether the hold is nevertheless: its end may have been brought forward
// by who did not come to write the lease. Whoever renews the lease meanwhile keeps it. It reports whether the administrator holds the
// lease no more.
func (l *Locker) UnholdLapsed(ctx context.Context, node, admin string, over func(context.Context) (bool, error)) (bool, error) {
	lease, err := l.read(ctx, node)
	switch {
	case err != nil:
		return false, err
	case lease == nil || holderOf(lease) != adminPrefix+admin:
		return true, nil
	case lease.Spec.RenewTime == nil || durationOf(lease) <= 0 || l.Clock.Now().Before(lease.Spec.RenewTime.Add(durationOf(lease))):
		if ended, err := over(ctx); err != nil || !ended {
			return false, err
		}
	}
	return l.release(ctx, lease)
}
