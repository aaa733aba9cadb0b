package server

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/internal/explain"
	"github.com/capi-refit/refit/internal/guard"
	"github.com/capi-refit/refit/internal/machineupdate"
	"github.com/capi-refit/refit/webhook"
)

// Where API servers ask: about policies, and about edits.
const (
	admissionPath = "/validate-change-management-policies"
	guardPath     = "/guard"
)

// What admission may ask of the API server: it is asked by people's edits, and by whoever reaches the port.
const (
	admissionQPS   = 10
	admissionBurst = 20
	// Of the guard: an edit takes half a dozen requests where templates change, and none else.
	guardQPS   = 100
	guardBurst = 200
)

// admissionFlags are those of the admission of policies, and of edits.
type admissionFlags struct {
	port       int
	guard      bool
	controller string
}

func (f *admissionFlags) add(fs *pflag.FlagSet) {
	fs.IntVar(&f.port, "admission-port", 0, "Port on which API servers are told, over HTTPS, which policies can't be read or never open, and with --guard what edits replace. It is another one than that of the hooks: API servers show no client certificate. 0: they are not told.")
	fs.BoolVar(&f.guard, "guard", false, "Tell API servers that ask at --admission-port which edits would replace machines that a policy protects, so that these are refused: config/components/guard, docs/guard.md.")
	fs.StringVar(&f.controller, "guard-controller", "system:serviceaccount:capi-system:capi-manager", "User by whose name Cluster API's core manager writes what it makes of topologies. The guard warns of such edits, and refuses none.")
}

// addAdmission has API servers be told of policies, and of edits, before they take them, on every replica.
func (o *options) addAdmission(mgr ctrl.Manager, namespace string, hooks *changemanagement.Hooks, judge explain.Judge) error {
	if o.admission.port == 0 {
		if o.admission.guard {
			return errors.New("--guard takes --admission-port: the port at which API servers ask")
		}
		return nil
	}
	tlsOpts, _, err := o.diagnosticsOptions()
	if err != nil {
		return err
	}
	log := ctrl.Log.WithName("admission")
	live, err := liveClient(mgr, admissionQPS, admissionBurst)
	if err != nil {
		return err
	}
	handler, err := webhook.NewAdmission(admissionPath, &changemanagement.Admission{Live: live, Clock: clock.RealClock{}, Namespace: namespace}, webhook.PolicyReviews, log)
	if err != nil {
		return err
	}
	server := webhook.NewAdmissionListener(ctrlwebhook.Options{Host: o.webhookHost, Port: o.admission.port, CertDir: o.webhookCertDir, TLSOpts: tlsOpts}, log)
	server.Register(admissionPath, handler)
	if o.admission.guard {
		guard, err := o.newGuard(mgr, hooks, judge)
		if err != nil {
			return err
		}
		if handler, err = webhook.NewAdmission(guardPath, guard, webhook.EditReviews, log); err != nil {
			return err
		}
		server.Register(guardPath, handler)
	}
	if err := mgr.Add(server); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("admission", server.StartedChecker())
}

// newGuard returns what looks at edits.
func (o *options) newGuard(mgr ctrl.Manager, hooks *changemanagement.Hooks, judge explain.Judge) (*guard.Guard, error) {
	live, err := liveClient(mgr, guardQPS, guardBurst)
	if err != nil {
		return nil, err
	}
	return &guard.Guard{
		Cached: mgr.GetClient(), Live: machineupdate.RememberCRDs(live, clock.RealClock{}), Hooks: hooks, Judge: judge, Clock: clock.RealClock{},
		Metrics: guard.NewMetrics(metrics.Registry), Namespace: o.namespace, Controller: o.admission.controller,
	}, nil
}

// liveClient returns a client of the API server with limits of its own.
func liveClient(mgr ctrl.Manager, qps float32, burst int) (client.Client, error) {
	cfg := rest.CopyConfig(mgr.GetConfig())
	cfg.QPS, cfg.Burst = qps, burst
	live, err := client.New(cfg, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("make a client for admission: %w", err)
	}
	return live, nil
}
