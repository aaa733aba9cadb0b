package kubelet

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/internal/agent/host"
)

// InstanceFile is where newer versions of kubeadm keep the part of the kubelet's configuration that is this node's own: the address of the
// container runtime, which older ones have among the arguments.
const InstanceFile = "/var/lib/kubelet/instance-config.yaml"

// endpointArg is the argument that has this address.
const endpointArg = "container-runtime-endpoint"

// WithEndpoint returns the file of arguments with the container runtime's address that it had before. It reports whether that is lost: it is
// neither there nor in the instance's file. Arguments that can't be read are left to people.
func WithEndpoint(before, now, instance []byte) (next []byte, lost bool) {
	was, err := parseFlags(before)
	if err != nil || last(was.values(endpointArg)) == "" {
		return nil, false
	}
	var s settings
	if err := s.add(InstanceFile, instance); err == nil && s.ContainerRuntimeEndpoint != "" {
		return nil, false
	}
	is, err := parseFlags(now)
	if err != nil && len(now) > 0 || last(is.values(endpointArg)) != "" {
		return nil, false
	}
	is.list = append(is.list, parseRaws(was.raws(endpointArg))...)
	return is.bytes(), true
}

// settings are what the kubelet's configuration and its arguments say of the kubelet that they start.
type settings struct {
	HealthzPort              *int   `json:"healthzPort"`
	HealthzBindAddress       string `json:"healthzBindAddress"`
	ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint"`
	CgroupDriver             string `json:"cgroupDriver"`
	ResolverConfig           string `json:"resolvConf"`
}

// argumentFiles are where kubeadm's drop-in of the kubelet's unit takes arguments from, and by which variable. Of one argument the last
// counts. Arguments that are set elsewhere are not seen.
var argumentFiles = []struct{ name, variable string }{
	{FlagsFile, variable},
	{"/etc/default/kubelet", "KUBELET_EXTRA_ARGS="},
	{"/etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS="},
}

// readSettings reads what the kubelet does when it starts: the file, then those of --config-dir in their order, then the arguments. It
// reports whether the kubelet is one that kubeadm has set up.
func readSettings(r host.Root) (s settings, ok bool, err error) {
	data, state, err := r.ReadFile(ConfigFile)
	if err != nil || !state.Exists {
		return s, false, err
	}
	if err := s.add(ConfigFile, data); err != nil {
		return s, false, err
	}
	args, err := readArguments(r)
	if err != nil {
		return s, false, err
	}
	if dir := args["config-dir"].value; dir != "" {
		if err := s.addDir(r, dir); err != nil {
			return s, false, err
		}
	}
	return s, true, s.argue(args)
}

// add takes what a configuration file says. What it does not mention stays.
func (s *settings) add(name string, data []byte) error {
	if err := yaml.Unmarshal(data, s); err != nil {
		return fmt.Errorf("%s can't be read: it is not the configuration of a kubelet", name)
	}
	return nil
}

func (s *settings) addDir(r host.Root, dir string) error {
	entries, err := r.ReadDir(dir)
	if err != nil {
		return nil //nolint:nilerr // a kubelet without it does not start, which it says itself
	}
	for _, e := range entries {
		if path.Ext(e.Name()) != ".conf" {
			continue
		}
		name := path.Join(dir, e.Name())
		data, _, err := r.ReadFile(name)
		if err != nil {
			return err
		}
		if err := s.add(name, data); err != nil {
			return err
		}
	}
	return nil
}

// argue takes what the arguments say, which come before the files.
func (s *settings) argue(args map[string]argument) error {
	s.HealthzBindAddress = cmp.Or(args["healthz-bind-address"].value, s.HealthzBindAddress)
	s.ContainerRuntimeEndpoint = cmp.Or(args[endpointArg].value, s.ContainerRuntimeEndpoint)
	s.CgroupDriver = cmp.Or(args["cgroup-driver"].value, s.CgroupDriver)
	s.ResolverConfig = cmp.Or(args["resolv-conf"].value, s.ResolverConfig)
	if a := args["healthz-port"]; a.value != "" {
		port, err := strconv.Atoi(a.value)
		if err != nil {
			return fmt.Errorf("--healthz-port in %s is not a number", a.file)
		}
		s.HealthzPort = &port
	}
	return nil
}

// argument is what an argument says, and in which file.
type argument struct{ value, file string }

// readArguments returns the arguments by name. Those that can't be read don't say anything.
func readArguments(r host.Root) (map[string]argument, error) {
	args := map[string]argument{}
	for _, file := range argumentFiles {
		data, state, err := r.ReadFile(file.name)
		if err != nil {
			return nil, err
		}
		if !state.Exists {
			continue
		}
		for _, fl := range assigned(data, file.variable) {
			args[fl.name] = argument{fl.value, file.name}
		}
	}
	return args, nil
}

func last(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// assigned returns the arguments in a variable of a file that systemd reads, which takes the last one of that name.
func assigned(data []byte, variable string) []flag {
	var list []flag
	for line := range bytes.Lines(data) {
		value, ok := strings.CutPrefix(strings.TrimSpace(string(line)), variable)
		if !ok {
			continue
		}
		list = nil
		if text := unquoted(strings.TrimSpace(value)); carried(text, " \t") {
			list = parseWords(strings.Fields(text))
		}
	}
	return list
}
