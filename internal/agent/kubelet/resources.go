package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// manager is one of the kubelet's managers of resources. It keeps a file, and the kubelet does not start when that was written
// under other arguments.
type manager struct {
	file string
	// always are the arguments that the file does not survive.
	always []string
	// exclusive are those that it does not survive when containers have resources of their own, which is when the policy that
	// is in the file is not "none".
	exclusive []string
}

// The names of the files are those of pkg/kubelet/cm in Kubernetes, which the kubelet's documentation says to delete too.
var managers = []manager{
	{
		file:      "/var/lib/kubelet/cpu_manager_state",
		always:    []string{"cpu-manager-policy"},
		exclusive: []string{"cpu-manager-policy-options", "reserved-cpus", "kube-reserved", "system-reserved"},
	},
	{
		file:      "/var/lib/kubelet/memory_manager_state",
		always:    []string{"memory-manager-policy"},
		exclusive: []string{"reserved-memory", "kube-reserved", "system-reserved", "eviction-hard"},
	},
}

// placing are the arguments that say where on the hardware containers run. Those that run stay where they are, against the new
// policy, so the pods have to go first.
var placing = []string{
	"cpu-manager-policy", "cpu-manager-policy-options", "memory-manager-policy", "reserved-memory", "topology-manager-policy",
	"topology-manager-policy-options", "topology-manager-scope",
}

// resources reports whether a change of arguments takes a drain, and notes in b the managers' files that have to go.
func (k *Kind) resources(names []string, b *before) (drain bool, err error) {
	changes := func(of []string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(of, n) })
	}
	drain = changes(placing)
	for _, m := range managers {
		if !changes(m.always) && !changes(m.exclusive) {
			continue
		}
		was, err := k.host.Save(m.file)
		if err != nil {
			return false, err
		}
		if !was.State.Exists || !changes(m.always) && !exclusive(was.Data) {
			continue
		}
		drain = true
		if b.Resources == nil {
			b.Resources = map[string]host.Saved{}
		}
		b.Resources[m.file] = was
	}
	return drain, nil
}

// exclusive reports whether a manager hands out resources. If its file can't be read, it may.
func exclusive(data []byte) bool {
	var file struct {
		PolicyName string `json:"policyName"`
	}
	return json.Unmarshal(data, &file) != nil || !strings.EqualFold(file.PolicyName, "none")
}

// stoppedFor writes the arguments. Where managers' files are concerned the kubelet does not run meanwhile, since it would write
// them again; it is started when all is done, because the next steps of a run may need it.
func (k *Kind) stoppedFor(ctx context.Context, b before, write func() error, resources func(before) error) error {
	if len(b.Resources) == 0 {
		return write()
	}
	if err := k.do(ctx, "stop"); err != nil {
		return err
	}
	err := write()
	if err == nil {
		err = resources(b)
	}
	return errors.Join(err, k.do(ctx, "start"))
}

func (k *Kind) do(ctx context.Context, verb string) error {
	if err := k.host.Units.Do(ctx, verb, Unit); err != nil {
		return fmt.Errorf("systemctl %s %s: %w (see journalctl -u %s on the node)", verb, Unit, err, Unit)
	}
	return nil
}

func (k *Kind) dropResources(b before) error {
	for _, file := range slices.Sorted(maps.Keys(b.Resources)) {
		if err := k.host.RemoveFile(file); err != nil {
			return err
		}
	}
	return nil
}

func (k *Kind) putBackResources(b before) error {
	for _, file := range slices.Sorted(maps.Keys(b.Resources)) {
		if err := k.host.PutBack(file, b.Resources[file]); err != nil {
			return err
		}
	}
	return nil
}
