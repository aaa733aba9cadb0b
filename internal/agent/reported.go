package agent

import (
	"context"

	"github.com/capi-refit/refit/internal/agent/probe"
	"github.com/capi-refit/refit/internal/disruption"
)

// reportFile is where it is noted when the kubelet has last reported before it was restarted, or the node rebooted.
const reportFile = "reported.json"

// noteReport notes it. Where that can't be told, the kubelet has to renew its lease only.
func (a *Agent) noteReport(ctx context.Context) {
	at, err := probe.Reported(ctx, a.host())
	if err != nil || at == "" {
		a.forgetReport()
		return
	}
	_ = a.state.save(reportFile, at) // so it is then, too
}

func (a *Agent) forgetReport() { _ = a.disk.Remove(a.state.path(reportFile)) }

// reportedSince returns the probe that asks whether the kubelet has reported since, if it has to.
func (a *Agent) reportedSince(w *work) []probe.Probe {
	before := ""
	if _, err := a.state.load(reportFile, &before); err != nil {
		before = ""
	}
	boots := disruption.Has(w.Plan.Actions, disruption.Reboot)
	if before == "" && !boots {
		return nil
	}
	return []probe.Probe{probe.ReportedSince(a.host(), before, boots)}
}
