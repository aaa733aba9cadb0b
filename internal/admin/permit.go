package admin

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/changemanagement"
)

// Permits lets people permit changes where a policy is Manual.
type Permits struct {
	Client client.Client
	Clock  clock.PassiveClock
	Out    io.Writer
	// Admin is who permits them.
	Admin string
	// Until is when the permission ends if the change has not started by then. Zero: never.
	Until time.Time
}

// Machine permits the change that the update of a Machine waits for.
func (p *Permits) Machine(ctx context.Context, m *clusterv1.Machine) error {
	mu, err := updateOf(ctx, p.Client, m)
	if err != nil {
		return err
	}
	if r := mu.Restored(); !changemanagement.Holds(r) {
		row := rowOf(mu, p.Clock.Now())
		return fmt.Errorf("the update of Machine %s can't be permitted: only one that waits for a policy can, and it is %s%s", client.ObjectKeyFromObject(m), row.Phase, inBrackets(row.Reason))
	}
	if err := p.permit(ctx, mu, p.Clock.Now()); err != nil {
		return err
	}
	return say(p.Out, "the change %s of Machine %s/%s is permitted%s; where other policies select it, it waits for them.\n", mu.ChangeID(), m.Namespace, m.Name, p.end())
}

// All permits the changes of all updates that wait for a policy, in the order of their names.
func (p *Permits) All(ctx context.Context, scope Scope) error {
	var list refitv1.MachineUpdateList
	if err := p.Client.List(ctx, &list, scope.options()...); err != nil {
		return fmt.Errorf("list MachineUpdates in %s: %w", scope, err)
	}
	waiting := slices.DeleteFunc(list.Items, func(mu refitv1.MachineUpdate) bool { return !changemanagement.Holds(mu.Restored()) })
	if len(waiting) == 0 {
		return fmt.Errorf("no update in %s waits for a policy; what comes later waits to be permitted by itself", scope)
	}
	slices.SortFunc(waiting, func(a, b refitv1.MachineUpdate) int { return strings.Compare(a.Name, b.Name) })
	now := p.Clock.Now()
	for i := range waiting {
		mu := &waiting[i]
		// Each a moment later, since they start in that order.
		if err := p.permit(ctx, mu, now.Add(time.Duration(i)*time.Microsecond)); err != nil {
			return err
		}
		if err := say(p.Out, "%s/%s: the change %s is permitted%s\n", mu.Namespace, mu.Name, mu.ChangeID(), p.end()); err != nil {
			return err
		}
	}
	return nil
}

func (p *Permits) end() string {
	if p.Until.IsZero() {
		return ""
	}
	return " until " + p.Until.UTC().Format(time.RFC3339)
}

// permit permits the change that an update waits for. If another one is asked for by now, that is not permitted.
func (p *Permits) permit(ctx context.Context, mu *refitv1.MachineUpdate, at time.Time) error {
	change := mu.ChangeID()
	return onConflict(ctx, p.Client, mu, func() error {
		if now := mu.ChangeID(); now != change {
			return fmt.Errorf("the update of Machine %s/%s is for another change by now, %s instead of %s; permit that if you want it", mu.Namespace, mu.Name, now, change)
		}
		return p.permitOnce(ctx, mu, at)
	})
}

func (p *Permits) permitOnce(ctx context.Context, mu *refitv1.MachineUpdate, at time.Time) error {
	changed := mu.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, refitv1.PermitAnnotation, changemanagement.PermitValue(at, mu.ChangeID(), p.Until, p.Admin))
	return annotate(ctx, p.Client, mu, changed, p.Admin)
}
