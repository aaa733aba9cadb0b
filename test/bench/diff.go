package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/inplace"
	"github.com/capi-refit/refit/updaters"
	"github.com/capi-refit/refit/updaters/controlplane"
	"github.com/capi-refit/refit/updaters/declared"
	"github.com/capi-refit/refit/updaters/files"
	"github.com/capi-refit/refit/updaters/image"
	"github.com/capi-refit/refit/updaters/inert"
	"github.com/capi-refit/refit/updaters/kubelet"
	"github.com/capi-refit/refit/updaters/ntp"
	"github.com/capi-refit/refit/updaters/users"
)

const (
	// largeDiff is how many files a side has of which all differ.
	largeDiff = 20_000
	// largeDiffBound is what processor time deciding about them may take, that of collecting garbage counted.
	largeDiffBound = time.Second
	// largeDiffRounds: the shortest counts, as other work only makes it longer.
	largeDiffRounds = 7
)

// hooks returns the handlers with all updaters that need no management cluster.
func hooks() (*handlers.CanUpdate, error) {
	rules := disruption.BuiltinRules()
	registry, err := updaters.NewRegistry(inert.New(false), declared.New(nil), files.New(rules), users.New(rules), ntp.New(rules),
		kubelet.New(rules), controlplane.New(rules), image.New(nil))
	if err != nil {
		return nil, err
	}
	return handlers.NewCanUpdate(handlers.NewEngine(inplace.Always(registry)), handlers.NoPolicies{}, handlers.NewMetrics(prometheus.NewRegistry()), ""), nil
}

// benchDiff measures the whole handler on a MachineSet with many files, of which all differ. It fails if that takes too long.
func benchDiff(ctx context.Context, out io.Writer) error {
	h, err := hooks()
	if err != nil {
		return err
	}
	say(out, "\n== CanUpdateMachineSet with %d files on a side, the cheapest of %d rounds", largeDiff, largeDiffRounds)
	for _, c := range []struct {
		name string
		body []byte
	}{
		{"all contents differ", filesRequest("a", "a", "2")},
		{"all come and go", filesRequest("a", "b", "1")},
	} {
		var shortest, leastCPU time.Duration
		for range largeDiffRounds {
			began, used := time.Now(), cpuTime()
			r := h.MachineSet(ctx, c.body)
			took, cpu := time.Since(began), cpuTime()-used
			if leastCPU == 0 || cpu < leastCPU {
				shortest, leastCPU = took, cpu
			}
			if r.GetStatus() != runtimehooksv1.ResponseStatusSuccess {
				return fmt.Errorf("%s: %s", c.name, r.GetMessage())
			}
		}
		say(out, "   %-24s %6d ms, processor time %6d ms, of %5d KiB", c.name, shortest.Milliseconds(), leastCPU.Milliseconds(), len(c.body)>>10)
		if leastCPU > largeDiffBound {
			return fmt.Errorf("%s: deciding took %s of processor time, and %s is the bound", c.name, leastCPU.Round(time.Millisecond), largeDiffBound)
		}
	}
	return nil
}

// cpuTime returns the processor time that this process has taken. Other than time it does not say how busy the machine is.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// filesRequest is a request about a MachineSet with files of such names before and after. Their content was 1.
func filesRequest(name, desiredName, desiredContent string) []byte {
	list := func(name, content string) string {
		var b strings.Builder
		for i := range largeDiff {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(`{"path":"/etc/cron.d/` + name + strconv.Itoa(i) + `","content":"` + content + `"}`)
		}
		return b.String()
	}
	return machineSetRequest(`"files":[`+list(name, "1")+`]`, `"files":[`+list(desiredName, desiredContent)+`]`)
}

// machineSetRequest is a request about a MachineSet whose KubeadmConfigTemplate has the fields, as JSON without braces.
func machineSetRequest(current, desired string) []byte {
	object := func(field, version, kind, spec string) string {
		return fmt.Sprintf(`%q:{"apiVersion":%q,"kind":%q,"metadata":{"name":"a","namespace":"b"},"spec":{"template":{"spec":{%s}}}}`, field, version, kind, spec)
	}
	side := func(spec string) string {
		return strings.Join([]string{
			object("machineSet", "cluster.x-k8s.io/v1beta2", "MachineSet", ""),
			object("infrastructureMachineTemplate", "infrastructure.cluster.x-k8s.io/v1beta2", "DevMachineTemplate", ""),
			object("bootstrapConfigTemplate", "bootstrap.cluster.x-k8s.io/v1beta2", "KubeadmConfigTemplate", spec),
		}, ",")
	}
	return []byte(`{"apiVersion":"hooks.runtime.cluster.x-k8s.io/v1alpha1","kind":"CanUpdateMachineSetRequest","current":{` +
		side(current) + `},"desired":{` + side(desired) + `}}`)
}
