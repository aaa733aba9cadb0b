package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

// Config is the kind of resource that is the file of the kubelet's configuration. kubeadm makes it, out of the cluster's configuration of
// kubelets and the patches on the node, by its phase "upgrade node phase kubelet-config". It is called when the patches have changed, and
// what it has written is looked at.
type Config struct{ host host.Host }

var _ kind.Kind = (*Config)(nil)

// NewConfig returns the kind for a node.
func NewConfig(h host.Host) *Config { return &Config{host: h} }

// configFiles are those that kubeadm's phase writes: some versions move the container runtime's address out of the arguments.
var configFiles = []string{ConfigFile, InstanceFile, FlagsFile}

// configBefore is what Undo of the configuration needs.
type configBefore struct {
	Files map[string]host.Saved `json:"files"`
	// Stopped is what has to go while the kubelet is stopped.
	Stopped before `json:"stopped"`
}

// Plan implements kind.Kind. Where it is not known which patches were applied, those count as changed that the configuration does not show.
func (k *Config) Plan(_ context.Context, q kind.Question) (kind.Answer, error) {
	if q.Desired == nil || q.Desired.KubeletConfig == nil {
		return kind.Answer{}, nil
	}
	names, changed, err := k.changed(q)
	if err != nil || !changed {
		return kind.Answer{}, err
	}
	if k.host.Program("kubeadm") == "" {
		return kind.Answer{Blocked: "the node has no kubeadm, which makes the configuration of the kubelet"}, nil
	}
	b := configBefore{Files: map[string]host.Saved{}}
	for _, p := range configFiles {
		is, err := k.host.Save(p)
		if err != nil {
			return kind.Answer{}, err
		}
		b.Files[p] = is
	}
	if !b.Files[ConfigFile].State.Exists {
		return kind.Answer{
			Blocked: ConfigFile + " is missing: this is not a kubeadm node, so its kubelet's configuration can't be changed here",
		}, nil
	}
	return k.propose(q, b, names)
}

// propose answers that kubeadm is to make the configuration again.
func (k *Config) propose(q kind.Question, b configBefore, names []string) (kind.Answer, error) {
	actions, err := q.Rules.Domain(disruption.KubeletArguments)
	if err != nil {
		return kind.Answer{Blocked: err.Error()}, nil
	}
	drain, err := New(k.host).resources(names, &b.Stopped)
	if err != nil {
		return kind.Answer{}, err
	}
	if drain {
		actions = disruption.Merge(actions, []disruption.Action{{Type: disruption.Drain}})
	}
	if len(b.Stopped.Resources) > 0 && k.host.Units == nil {
		return kind.Answer{Blocked: "the node has no systemctl, so the kubelet can't be stopped to change how it manages CPUs and memory"}, nil
	}
	raw, err := json.Marshal(b)
	return kind.Answer{Operation: node.Write, Actions: actions, Before: raw}, err
}

// changed reports whether the patches are other ones than those that were applied, and returns the arguments that stand for the fields that
// they name.
func (k *Config) changed(q kind.Question) (names []string, changed bool, err error) {
	dir := q.Desired.KubeletConfig.PatchesDirectory
	was := dir
	if q.Was != nil && q.Was.KubeletConfig != nil {
		was = q.Was.KubeletConfig.PatchesDirectory
	}
	now, err := readPatches(k.host.Root, was, nil)
	if err != nil {
		return nil, false, err
	}
	then, err := readPatches(k.host.Root, dir, q.Files)
	if err != nil {
		return nil, false, err
	}
	changed = !now.same(then)
	if q.Was == nil && !changed {
		shown, err := k.shows(then)
		if err != nil {
			return nil, false, err
		}
		changed = !shown
	}
	return append(now.arguments(), then.arguments()...), changed, nil
}

// shows reports whether the configuration has what patches say. On a node without one, there is none to have it.
func (k *Config) shows(p patches) (bool, error) {
	if len(p) == 0 {
		return true, nil
	}
	data, state, err := k.host.ReadFile(ConfigFile)
	if err != nil || !state.Exists {
		return true, err
	}
	missing, err := p.missing(data)
	return len(missing) == 0, err
}

// Make implements kind.Kind.
func (k *Config) Make(ctx context.Context, c kind.Change) (string, error) {
	b, err := readConfigBefore(c)
	if err != nil {
		return "", err
	}
	dir := c.Desired.KubeletConfig.PatchesDirectory
	args := []string{"upgrade", "node", "phase", "kubelet-config"}
	if dir != "" {
		args = append(args, "--patches="+dir)
	}
	write := func() error {
		if err := k.endpointBack(b); err != nil { // a kubeadm that was killed may have lost it
			return err
		}
		if _, err := k.host.RunTelling(ctx, host.Command{Name: "kubeadm", Args: args}); err != nil {
			return fmt.Errorf("kubeadm could not make the configuration of the kubelet: %w", err)
		}
		return k.verify(b, dir)
	}
	kubelet := New(k.host)
	return "", kubelet.stoppedFor(ctx, b.Stopped, write, kubelet.dropResources)
}

// verify returns an error unless the configuration is one, and has what the patches say.
func (k *Config) verify(b configBefore, dir string) error {
	all, err := readPatches(k.host.Root, dir, nil)
	if err != nil {
		return err
	}
	data, state, err := k.host.ReadFile(ConfigFile)
	if err != nil {
		return err
	}
	if !state.Exists {
		return fmt.Errorf("kubeadm has ended well, and %s is missing", ConfigFile)
	}
	missing, err := all.missing(data)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("kubeadm has ended well, and %s does not have what the patches in %s say of %s; this version of kubeadm may not "+
			"patch it, or not know the field", ConfigFile, dir, strings.Join(missing, ", "))
	}
	lost, err := k.endpointLost(b)
	if err == nil && lost {
		err = errors.New("kubeadm has ended well, and the address of the container runtime is neither among the kubelet's arguments nor in " + InstanceFile)
	}
	return err
}

// endpointLost reports whether the address of the container runtime, which was among the arguments, is nowhere.
func (k *Config) endpointLost(b configBefore) (bool, error) {
	instance, _, err := k.host.ReadFile(InstanceFile)
	if err != nil {
		return false, err
	}
	now, _, err := k.host.ReadFile(FlagsFile)
	if err != nil {
		return false, err
	}
	_, lost := WithEndpoint(b.Files[FlagsFile].Data, now, instance)
	return lost, nil
}

// endpointBack puts back the arguments if a kubeadm that was killed has taken the container runtime's address away from them, and has not
// written it down elsewhere: called again it would find none.
func (k *Config) endpointBack(b configBefore) error {
	lost, err := k.endpointLost(b)
	if err != nil || !lost {
		return err
	}
	for _, p := range []string{InstanceFile, FlagsFile} { // in this order: a death between leaves that it is lost
		if err := k.host.PutBack(p, b.Files[p]); err != nil {
			return err
		}
	}
	return nil
}

// Undo implements kind.Kind.
func (k *Config) Undo(ctx context.Context, c kind.Change) error {
	b, err := readConfigBefore(c)
	if err != nil {
		return err
	}
	write := func() error {
		for _, p := range configFiles {
			if err := k.host.PutBack(p, b.Files[p]); err != nil {
				return err
			}
		}
		return nil
	}
	kubelet := New(k.host)
	return kubelet.stoppedFor(ctx, b.Stopped, write, kubelet.putBackResources)
}

func readConfigBefore(c kind.Change) (configBefore, error) {
	var b configBefore
	if err := json.Unmarshal(c.Before, &b); err != nil {
		return configBefore{}, errors.New("what the kubelet's configuration was before can't be read")
	}
	return b, nil
}
