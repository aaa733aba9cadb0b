package pending

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/registered"
	"github.com/capi-refit/refit/internal/rollback"
)

// Registered has the extensions that are registered as updaters.
type Registered interface {
	// Claimants says who they are, and asks none of them. Empty: there is none.
	Claimants(ctx context.Context, s registered.Subject) string
	// Basis returns what changes when they do, or for which of them the machine is.
	Basis(ctx context.Context, s registered.Subject) (string, error)
}

// Asker asks them as Cluster API has refit ask them.
type Asker interface {
	// Question returns the request that Cluster API makes. A *rollback.RefusedError says why there is none.
	Question(ctx context.Context, machine client.ObjectKey) ([]byte, error)
	// Claims returns what is decided about a request. A *registered.Fault in an error says for whose fault nothing is.
	Claims(ctx context.Context, request []byte) (*inplace.Claims, error)
}

// others returns the verdict on a Machine of whose change the updaters leave something: theirs if nobody else can claim it, what the others have said last, or
// that it is not known. It asks nobody: an extension may be slow, and all views wait for this one.
func (o *Owners) others(ctx context.Context, key types.NamespacedName, m *clusterv1.Machine, theirs verdict, paused bool) verdict {
	if o.Registered == nil {
		return theirs
	}
	subject := registered.Subject{Subject: inplace.SubjectOf(m), Infrastructure: m.Spec.InfrastructureRef.Kind}
	may := o.Registered.Claimants(ctx, subject)
	if may == "" {
		return theirs
	}
	if o.Asker == nil {
		return unknown(theirs.note + "; " + may)
	}
	if paused {
		return unknown(theirs.note + "; " + may + "; they are not asked while it is paused")
	}
	on := theirs.rests
	basis, err := o.Registered.Basis(ctx, subject)
	if err != nil {
		return unknown(err.Error())
	}
	on.basis += "; " + basis
	if said, ok := o.questions.want(key, client.ObjectKeyFromObject(m), m.Spec.ClusterName, on, o.Clock.Now()); ok {
		return said
	}
	return unknown(theirs.note + "; " + may + "; they have not been asked yet")
}

// ask asks the registered extensions.
func (o *Owners) ask(ctx context.Context, machine client.ObjectKey) (v verdict) {
	log := ctrl.LoggerFrom(ctx)
	defer func() { // what they send is read here, and no controller is around that would go on
		if p := recover(); p != nil {
			log.Error(fmt.Errorf("panic: %v", p), "Could not ask registered updaters; please report this", "machine", machine, "stack", string(debug.Stack()))
			v = unknown("registered updaters could not be asked, for a fault of refit's; its log has it")
		}
	}()
	request, err := o.Asker.Question(ctx, machine)
	refused := &rollback.RefusedError{}
	switch {
	case errors.As(err, &refused):
		return unknown(refused.Reason)
	case err != nil: // it is no text for people
		log.Info("Could not ask registered updaters", "machine", machine, "reason", err.Error())
		return unknown("what is wanted could not be read; refit tries again")
	}
	claims, err := o.Asker.Claims(ctx, request)
	if err != nil {
		return unknown(err.Error())
	}
	v = decided(claims.Change, claims.Decision)
	if v.cause == refitv1.PendingInPlace {
		v.note, v.claims = claimed(claims), claimsOf(claims)
	}
	return v
}

// maxField is how long the path of a field may be in a status, in characters.
const maxField = 1024

// claimsOf returns the fields that registered extensions make.
func claimsOf(c *inplace.Claims) []refitv1.PendingClaim {
	var out []refitv1.PendingClaim
	for _, f := range c.Decision {
		name, others := strings.CutPrefix(f.Updater, registered.UpdaterPrefix)
		if field := f.Field.String(); others && utf8.RuneCountInString(field) <= maxField {
			out = append(out, refitv1.PendingClaim{Object: string(f.Field.Object), Field: field, Registration: name})
		}
	}
	return out
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
