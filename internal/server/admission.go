package server

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/capi-refit/refit/internal/changemanagement"
	"github.com/capi-refit/refit/webhook"
)

// admissionPath is where API servers ask about policies.
const admissionPath = "/validate-change-management-policies"

// What admission may ask of the API server: it is asked by people's edits, and by whoever reaches the port.
const (
	admissionQPS   = 10
	admissionBurst = 20
)

// admissionFlags are those of the admission of policies.
type admissionFlags struct{ port int }

func (f *admissionFlags) add(fs *pflag.FlagSet) {
	fs.IntVar(&f.port, "admission-port", 0, "Port on which API servers are told, over HTTPS, which policies can't be read or never open. It is another one than that of the hooks: API servers show no client certificate. 0: they are not told.")
}

// addAdmission has API servers be told of policies before they take them, on every replica.
func (o *options) addAdmission(mgr ctrl.Manager, namespace string) error {
	if o.admission.port == 0 {
		return nil
	}
	tlsOpts, _, err := o.diagnosticsOptions()
	if err != nil {
		return err
	}
	cfg := rest.CopyConfig(mgr.GetConfig())
	cfg.QPS, cfg.Burst = admissionQPS, admissionBurst
	live, err := client.New(cfg, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("make a client for admission: %w", err)
	}
	log := ctrl.Log.WithName("admission")
	handler, err := webhook.NewAdmission(admissionPath, &changemanagement.Admission{Live: live, Clock: clock.RealClock{}, Namespace: namespace}, log)
	if err != nil {
		return err
	}
	server := webhook.NewAdmissionListener(ctrlwebhook.Options{Host: o.webhookHost, Port: o.admission.port, CertDir: o.webhookCertDir, TLSOpts: tlsOpts}, log)
	server.Register(admissionPath, handler)
	if err := mgr.Add(server); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("admission", server.StartedChecker())
}
