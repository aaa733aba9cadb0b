package handlers

import (
	"context"
	"strings"

	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/registered"
)

// doubt has a change that the updaters leave something of be Unknown if registered extensions may claim that. They are not asked about a change that Cluster
// API does not ask about: they may be reached from the management cluster only, may take longer than an API server waits, and are to see the specs of
// machines that change, and no others.
func (e *Engine) doubt(ctx context.Context, s inplace.Subject, change fieldset.Change, x *Explanation) {
	if e.registered == nil || x.Verdict != VerdictReplace {
		return
	}
	infrastructure, known := change.Object(fieldset.InfrastructureMachine)
	may := e.registered.Claimants(ctx, registered.Subject{Subject: s, Infrastructure: infrastructure.Current.Kind, AnyInfrastructure: !known})
	if may == "" {
		return
	}
	x.Verdict, x.Disruption = VerdictUnknown, ""
	for i := range x.Fields {
		if f := &x.Fields[i]; !f.Covered {
			f.Reason = strings.TrimPrefix(f.Reason+"; "+may, "; ")
			f.Disruption = ""
		}
	}
}
