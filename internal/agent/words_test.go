package agent

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

var updatePlans = flag.Bool("update-plans", false, "write testdata/plans.txt again")

// TestPlansInWords tells what a node would do, by the built-in rules, for changes as operators make them. It is to be read. To write
// it again: go test ./internal/agent -run TestPlansInWords -update-plans.
func TestPlansInWords(t *testing.T) {
	const flags = "KUBELET_KUBEADM_ARGS=\"--pod-infra-container-image=pause --v=2\"\n"
	key := "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPpE6oFOcaE4ESPsRZBPUD8FZd7hnMVuIx02Jr0FYGvR a"
	file := wanted
	cases := map[string][]node.Resource{
		"a motd":                             {file("/etc/motd", "hello\n")},
		"a drop-in of the kubelet":           {file("/etc/systemd/system/kubelet.service.d/20.conf", "[Service]\n")},
		"sysctls and a module":               {file("/etc/sysctl.d/90.conf", "a=1\n"), file("/etc/modules-load.d/a.conf", "overlay\n")},
		"containerd's configuration":         {file("/etc/containerd/config.toml", "version = 3\n")},
		"a registry's certificates":          {file("/etc/containerd/certs.d/a/hosts.toml", "server = 'https://a'\n")},
		"registries.conf, one more registry": {file("/etc/containers/registries.conf", "unqualified-search-registries = ['a', 'b']\n")},
		"registries.conf, one registry less": {file("/etc/containers/registries.conf", "unqualified-search-registries = ['b']\n")},
		"sshd":                               {file("/etc/ssh/sshd_config.d/50.conf", "MaxSessions 20\n")},
		"a path that no rule names":          {file("/opt/app/app.conf", "a\n")},
		"a static pod that is none":          {file("/etc/kubernetes/manifests/a.yaml", "not: a pod\n")},
		"a user with a key":                  {{User: &node.User{Name: "alice", Shell: "/usr/sbin/sh", SSHAuthorizedKeys: []string{key}}}},
		"an argument of the kubelet":         {{Kubelet: &node.Kubelet{ExtraArgs: []node.Arg{{Name: "max-pods", Value: "77"}}}}},
		"how the kubelet hands out CPUs":     {{Kubelet: &node.Kubelet{ExtraArgs: []node.Arg{{Name: "cpu-manager-policy", Value: "static"}}}}},
		"time servers":                       {{NTP: &node.NTP{Enabled: true, Servers: []string{"192.0.2.1"}}}},
		"no time servers":                    {{NTP: &node.NTP{}}},
		"a unit that is not to run":          {{Unit: &node.Unit{Name: "rpcbind.service", Enabled: new(false), Active: new(false)}}},
		"the control plane of a worker":      {{ControlPlane: &node.ControlPlane{Scheduler: node.Component{ExtraArgs: []node.Arg{{Name: "v", Value: "3"}}}}}},
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		n := newTestNode(t)
		n.put("/etc/shadow", "root:*:1::::::\n")
		n.put("/var/lib/kubelet/kubeadm-flags.env", flags)
		n.put("/etc/containers/registries.conf", "unqualified-search-registries = ['a']\n")
		n.put("/lib/systemd/systemd-timesyncd", "")
		for _, program := range []string{"sh", "useradd", "usermod", "userdel", "groupadd", "groupdel", "chpasswd", "visudo"} {
			n.program(program, "exit 1") // a plan runs none of them to change anything
		}
		running := host.UnitState{LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled"}
		n.units.states["systemd-timesyncd.service"], n.units.states["rpcbind.service"] = running, running
		for _, absent := range []string{"chrony.service", "chronyd.service", "ntp.service", "ntpd.service", "openntpd.service"} {
			n.units.states[absent] = host.UnitState{LoadState: "not-found", ActiveState: "inactive"}
		}
		req := request(1)
		req.Rules, req.Resources = disruption.BuiltinRules(), cases[name]
		fmt.Fprintf(&text, "%s:\n%s\n", name, inWords(n.plan(req)))
	}
	if *updatePlans {
		require.NoError(t, os.WriteFile("testdata/plans.txt", []byte(text.String()), 0o600))
	}
	golden, err := os.ReadFile("testdata/plans.txt")
	require.NoError(t, err)
	require.Equal(t, string(golden), text.String())
}

func inWords(p node.Plan) string {
	var lines []string
	for _, b := range p.Blocked {
		lines = append(lines, "  blocked: "+b.Reason)
	}
	for _, a := range p.Actions {
		if a.Type == disruption.Drain {
			lines = append(lines, "  Drain")
		}
	}
	for _, c := range p.Changes {
		lines = append(lines, "  "+changeName(c))
	}
	for _, a := range onNode(p.Actions) {
		lines = append(lines, "  "+actionName(a))
	}
	for _, note := range p.Notes {
		lines = append(lines, "  note: "+note)
	}
	if len(lines) == 0 {
		return "  nothing"
	}
	return strings.Join(lines, "\n")
}
