package agent

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

func TestFilesThatTheirReaderSkipsAreNotWritten(t *testing.T) {
	const (
		sshd, main  = "/etc/ssh/sshd_config.d/10.conf", "/etc/ssh/sshd_config"
		dropIn      = "/etc/containerd/conf.d/10.toml"
		noInclude   = "sshd does not read " + sshd + ", since " + main + ` includes no such file: add the line "Include /etc/ssh/sshd_config.d/*.conf", or give`
		noImport    = "containerd does not read " + dropIn + ", since " + containerdConfig + " includes no such file: add the line "
		interfacesD = "/etc/network/interfaces.d/"
		hosts       = "/etc/containerd/certs.d/registry.example/hosts.toml"
		registries  = "[plugins.'io.containerd.cri.v1.images'.registry]\n"
		badHosts    = "containerd does not accept " + hosts + ": "
		noHosts     = "containerd does not read " + hosts + ", since config_path of the registries in " + containerdConfig + " is not /etc/containerd/certs.d"
	)
	for name, tc := range map[string]struct {
		node, files []string
		mode, want  string
	}{
		"by its name":              {files: []string{"/etc/sysctl.d/90-hardening", "x"}, want: "systemd-sysctl reads only *.conf below /etc/sysctl.d: name it 90-hardening.conf"},
		"sudo's, by its name":      {files: []string{"/etc/sudoers.d/ops.conf", "x"}, want: "sudo reads only files with names without a dot"},
		"Debian's cron":            {files: []string{"/etc/cron.d/ops.cron", "x"}, want: "cron reads only files with names of letters, digits, _ and -"},
		"a program's":              {files: []string{"/etc/grub.d/40_x", "x"}, want: "grub-mkconfig runs only what is executable"},
		"sshd without an Include":  {node: []string{main, "PermitRootLogin no\n# Include /etc/ssh/sshd_config.d/*.conf\n"}, files: []string{sshd, "x"}, want: noInclude},
		"sshd with one":            {node: []string{main, "include \"/etc/ssh/sshd_config.d/*.conf\" # all\n"}, files: []string{sshd, "x"}},
		"a relative one":           {node: []string{main, "Include sshd_config.d/*.conf\n"}, files: []string{sshd, "x"}},
		"with one for other names": {node: []string{main, "Include /etc/ssh/sshd_config.d/*.cfg\n"}, files: []string{sshd, "x"}, want: noInclude},
		"by an included file":      {node: []string{main, "Include /etc/ssh/more\n", "/etc/ssh/more", "Include=/etc/ssh/sshd_config.d/*\n"}, files: []string{sshd, "x"}},
		"by one of the change":     {node: []string{main, "UsePAM no\n"}, files: []string{sshd, "x", main, "Include /etc/ssh/sshd_config.d/*\n"}},
		"no longer, by the change": {node: []string{main, "Include /etc/ssh/sshd_config.d/*\n"}, files: []string{sshd, "x", main, "UsePAM no\n"}, want: noInclude},
		"a hidden file":            {node: []string{main, "Include /etc/ssh/sshd_config.d/*\n"}, files: []string{"/etc/ssh/sshd_config.d/.x", "x"}, want: "sshd does not read"},
		"containerd without":       {node: []string{containerdConfig, "version = 2\n"}, files: []string{dropIn, "version = 2\n"}, want: noImport},
		"containerd with imports":  {node: []string{containerdConfig, "imports = ['conf.d/*.toml']\n"}, files: []string{dropIn, "version = 2\n"}},
		"of another ending":        {node: []string{containerdConfig, "imports = ['conf.d/*.toml']\n"}, files: []string{"/etc/containerd/conf.d/10.conf", "version = 2\n"}, want: "containerd does not read"},
		"a registry's, elsewhere":  {node: []string{containerdConfig, registries + "config_path = '/opt/certs.d'\n"}, files: []string{hosts, ""}, want: noHosts},
		"a registry's, not so":     {node: []string{containerdConfig, registries + "[plugins.'io.containerd.cri.v1.images'.registry.mirrors.'a.io']\nendpoint = ['https://b.io']\n"}, files: []string{hosts, ""}, want: noHosts},
		"a registry's":             {node: []string{containerdConfig, registries + "config_path = '/etc/containerd/certs.d:/etc/docker/certs.d'\n"}, files: []string{hosts, ""}},
		"a registry's, by import":  {node: []string{containerdConfig, "imports = ['/etc/containerd/conf.d/*.toml']\n" + registries + "config_path = ''\n", dropIn, registries + "config_path = '/etc/containerd/certs.d'\n"}, files: []string{hosts, ""}},
		"by another name":          {node: []string{containerdConfig, registries + "config_path = '/etc/containerd//certs.d/'\n"}, files: []string{hosts, ""}},
		"by an import's import":    {node: []string{containerdConfig, "imports = ['a.toml']\n" + registries + "config_path = ''\n", "/etc/containerd/a.toml", "imports = ['b.toml']\n"}, files: []string{hosts, ""}},
		"by more than is known":    {node: []string{containerdConfig, "imports = ['*/a.toml']\n" + registries + "config_path = ''\n"}, files: []string{hosts, ""}},
		"by version, so written":   {node: []string{containerdConfig, "version = 3\n"}, files: []string{hosts, ""}},
		"hosts of a registry":      {files: []string{hosts, "server = 'a.io'\n[host.'http://b.io:5000/v2']\ncapabilities = ['pull', 'Resolve']\ndial_timeout = '5s'\nca = 'b.crt'\n[host.'c.io']\n"}},
		"no TOML":                  {files: []string{hosts, "\nserver = [\n"}, want: badHosts + "it is not TOML, or has a value of another type at line 2, column"},
		"a value of another type":  {files: []string{hosts, "server = 1\n"}, want: badHosts + "it is not TOML, or has a value of another type at line 1, column"},
		"a server without a host":  {files: []string{hosts, "server = 'https://'\n"}, want: badHosts + "an address is neither"},
		"one of another scheme":    {files: []string{hosts, "server = 'httpx://a.io'\n"}, want: badHosts + "an address is neither"},
		"a host that is none":      {files: []string{hosts, "[host.'http://a b']\n"}, want: badHosts + "an address is neither"},
		"a host without a name":    {files: []string{hosts, "[host.'']\n"}, want: badHosts + "a host has no address"},
		"no capability":            {files: []string{hosts, "[host.'a.io']\ncapabilities = ['fetch']\n"}, want: badHosts + "a capability is none of"},
		"no duration":              {files: []string{hosts, "dial_timeout = '5'\n"}, want: badHosts + "dial_timeout is no duration"},
		"none of a registry's":     {files: []string{"/etc/containerd/certs.d/a.io/a.crt", "x"}},
		"ifupdown with source":     {node: []string{"/etc/network/interfaces", "source /etc/network/interfaces.d/*\n"}, files: []string{interfacesD + "a.cfg", "x"}},
		"with source-directory":    {node: []string{"/etc/network/interfaces", "source-directory interfaces.d\n"}, files: []string{interfacesD + "a.cfg", "x"}, want: "ifupdown does not read"},
		"and a name for it":        {node: []string{"/etc/network/interfaces", "source-directory interfaces.d\n"}, files: []string{interfacesD + "a", "x"}},
		"ifupdown without":         {node: []string{"/etc/network/interfaces", "auto lo\n"}, files: []string{interfacesD + "a", "x"}, want: "ifupdown does not read"},
		"sudo without":             {node: []string{"/etc/sudoers", "root ALL=(ALL) ALL\n"}, files: []string{"/etc/sudoers.d/a", "x"}, mode: "0440", want: "sudo does not read"},
		"sudo with includedir":     {node: []string{"/etc/sudoers", "#includedir /etc/sudoers.d\n"}, files: []string{"/etc/sudoers.d/a", "x"}, mode: "0440"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(t)
			for _, program := range []string{"visudo", "ifup", "update-grub"} {
				n.program(program, "cat >/dev/null")
			}
			for i := 0; i < len(tc.node); i += 2 {
				n.put(tc.node[i], tc.node[i+1])
			}
			req := builtin(1, tc.files...)
			if tc.mode != "" {
				req.Resources[0].File.Mode = tc.mode
			}
			plan := n.plan(req)
			if tc.want == "" {
				require.Empty(t, plan.Blocked)
				return
			}
			require.Len(t, plan.Blocked, 1)
			require.Contains(t, plan.Blocked[0].Reason, tc.want)
			n.refuse(req, node.ReasonBlocked)
			req.Rules.Files = append(req.Rules.Files, disruption.Rule{Path: tc.files[0], Actions: []disruption.Action{{Type: disruption.Drain}}, From: "p"})
			require.Len(t, n.plan(req).Blocked, 1, "a policy's actions leave the check")
			req.Rules.Files[len(req.Rules.Files)-1].Unsafe = true
			require.Empty(t, n.plan(req).Blocked)
		})
	}
}

func TestAFileThatItsReaderSkipsCanGo(t *testing.T) {
	const p = "/etc/sysctl.d/90-hardening"
	n := newTestNode(t)
	n.put(p, "x")
	req := builtin(1)
	req.Baseline = &node.Baseline{Files: []node.BaselineFile{laidDown(p, "x")}}
	n.succeed(req)
	require.Equal(t, "(missing)", n.content(p))
}

// TestAllThatIsWrongWithAFileIsToldAtOnce: it is not read, and would not be accepted.
func TestAllThatIsWrongWithAFileIsToldAtOnce(t *testing.T) {
	n := newTestNode(t)
	n.put(containerdConfig, "[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = '/opt/certs.d'\n")
	const hosts = "/etc/containerd/certs.d/registry.example/hosts.toml"
	blocked := n.plan(builtin(1, hosts, "dial_timeout = '5'\n")).Blocked
	require.Len(t, blocked, 2)
	require.Contains(t, blocked[0].Reason, "containerd does not read "+hosts)
	require.Contains(t, blocked[1].Reason, "containerd does not accept "+hosts)
}
