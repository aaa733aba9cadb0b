package pending

import (
	"context"
	"errors"
	"fmt"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/registered"
	"github.com/capi-refit/refit/internal/rollback"
)

// askedAtOnce is about how many owners registered extensions are asked for one view: each may take as long to answer as a hook waits.
const askedAtOnce = 3

// Registered has the extensions that are registered as updaters.
type Registered interface {
	// Claimants says who they are, and asks none of them. Empty: there is none.
	Claimants(ctx context.Context, s registered.Subject) string
	// Basis returns what changes when they do.
	Basis(ctx context.Context) (string, error)
}

// Asker asks them as Cluster API has refit ask them.
type Asker interface {
	// Question returns the request that Cluster API makes. A *rollback.RefusedError says why there is none.
	Question(ctx context.Context, machine client.ObjectKey) ([]byte, error)
	// Claims returns what is decided about a request. A *registered.Fault in an error says for whose fault nothing is.
	Claims(ctx context.Context, request []byte) (*inplace.Claims, error)
}

// basis returns what a verdict rests on beside what is compared.
func (o *Owners) basis(ctx context.Context, s inplace.Subject) (string, error) {
	basis, err := o.Updaters.Basis(ctx, s)
	if err != nil || o.Registered == nil {
		return basis, err
	}
	others, err := o.Registered.Basis(ctx)
	return basis + "; " + others, err
}

// left returns the verdict on a Machine of whose change the updaters leave something: theirs if nobody else can claim it, what the others say, or that it is
// not known.
func (o *Owners) left(ctx context.Context, m *clusterv1.Machine, s inplace.Subject, theirs verdict) verdict {
	if o.Registered == nil {
		return theirs
	}
	may := o.Registered.Claimants(ctx, registered.Subject{Subject: s, Infrastructure: m.Spec.InfrastructureRef.Kind})
	if may == "" {
		return theirs
	}
	if o.Asker == nil {
		v := unknown(theirs.note + "; " + may)
		v.lasting = true
		return v
	}
	if o.questions--; o.questions < 0 {
		return unknown(theirs.note + "; " + may + "; they have not been asked yet")
	}
	return o.ask(ctx, m)
}

// ask asks the registered extensions. What they say is known for a short time only: nobody tells when it changes.
func (o *Owners) ask(ctx context.Context, m *clusterv1.Machine) verdict {
	request, err := o.Asker.Question(ctx, client.ObjectKeyFromObject(m))
	refused := &rollback.RefusedError{}
	switch {
	case errors.As(err, &refused):
		return unknown(refused.Reason)
	case err != nil: // it is no text for people
		ctrl.LoggerFrom(ctx).Info("Could not ask registered updaters", "machine", client.ObjectKeyFromObject(m), "reason", err.Error())
		return unknown("what is wanted could not be read; refit tries again")
	}
	claims, err := o.Asker.Claims(ctx, request)
	if err != nil {
		return unknown(err.Error())
	}
	v := decided(claims.Change, claims.Decision)
	v.passing = true
	if v.cause == refitv1.PendingInPlace {
		v.note = claimed(claims)
	}
	return v
}

// claimed says which fields registered extensions make, or would make if another updater did not.
func claimed(c *inplace.Claims) string {
	var all []string
	for i, f := range c.Decision {
		name, others := strings.CutPrefix(f.Updater, registered.UpdaterPrefix)
		if !others && len(c.Also[i]) == 0 {
			continue
		}
		by := f.Updater
		if others {
			by = "UpdaterRegistration " + name
		}
		text := fmt.Sprintf("%s of the %s by %s", f.Field, f.Field.Object, by)
		if len(c.Also[i]) > 0 {
			text += fmt.Sprintf(" (UpdaterRegistration %s would claim it, too)", strings.Join(c.Also[i], ", "))
		}
		all = append(all, text)
	}
	if more := len(all) - mostClaimed; more > 0 {
		all = append(all[:mostClaimed], fmt.Sprintf("%d more", more))
	}
	text := strings.Join(all, ", ")
	for _, err := range c.Unsaid {
		text += "; " + err.Error()
	}
	return text
}

// mostClaimed is how many fields are named.
const mostClaimed = 5
