package cli

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/explain"
	"github.com/capi-refit/refit/internal/fieldset"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/internal/registered"
)

// unaskedJudge judges by refit's own updaters. What these leave others may claim that are registered in the management cluster. They are not asked: they
// may be reached from there only, and are to see the specs of machines that change, and no others. So it can't be told what becomes of the machines.
type unaskedJudge struct {
	explain.Judge
	registry *registered.Registry
}

// ExplainChange implements explain.Judge.
func (j *unaskedJudge) ExplainChange(ctx context.Context, s inplace.Subject, change fieldset.Change) (*handlers.Explanation, error) {
	x, err := j.Judge.ExplainChange(ctx, s, change)
	if err != nil || x.Verdict != handlers.VerdictReplace {
		return x, err
	}
	infrastructure, known := change.Object(fieldset.InfrastructureMachine)
	of := registered.Subject{Subject: s, Infrastructure: infrastructure.Current.Kind, AnyInfrastructure: !known}
	names, err := j.registry.Names(ctx, of)
	if meta.IsNoMatchError(err) || err == nil && len(names) == 0 {
		return x, nil
	}
	may := "UpdaterRegistrations may claim it, and which there are is not known: " + fmt.Sprint(err)
	if err == nil {
		may = "it may be claimed by UpdaterRegistration " + strings.Join(names, ", then ") + ", which refit asks when Cluster API asks it, and refit explain does not"
	}
	x.Verdict, x.Disruption = string(explain.Unknown), ""
	for i := range x.Fields {
		if f := &x.Fields[i]; !f.Covered {
			f.Reason = strings.TrimPrefix(f.Reason+"; "+may, "; ")
			f.Disruption = ""
		}
	}
	return x, nil
}
