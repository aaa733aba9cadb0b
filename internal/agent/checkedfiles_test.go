package agent

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

const sudoRule = "/etc/sudoers.d/app"

// sudoNode is a node whose visudo accepts no text with BAD in it, and no alias A twice.
func sudoNode(t *testing.T) *testNode {
	n := newTestNode(t)
	n.program("visudo", `[ "$1" = -cf ] || exit 9
t=$(cat); case $t in *BAD*) exit 1;; *"_Alias A"*"_Alias A"*) exit 1;; esac`)
	n.put("/etc/sudoers", "root ALL=(ALL:ALL) ALL\n@includedir /etc/sudoers.d\n")
	n.put("/etc/sudoers.d/90-refit-deploy", "deploy ALL=(ALL) NOPASSWD: ALL\n")
	n.put("/etc/sudoers.d/README.md", "BAD, and not read\n")
	return n
}

func sudoRequest(mode string, pathsAndContents ...string) node.Request {
	req := request(1, pathsAndContents...)
	req.Rules, req.Login = disruption.BuiltinRules(), node.Login{User: "deploy"}
	for _, r := range req.Resources {
		r.File.Mode = mode
	}
	return req
}

// TestSudoersThroughFiles: visudo never saw them.
func TestSudoersThroughFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		files         []string
		mode, blocked string
	}{
		"good":                   {files: []string{sudoRule, "app ALL=(ALL) /bin/true\n"}},
		"bad":                    {files: []string{sudoRule, "BAD"}, blocked: "visudo does not accept " + sudoRule},
		"bad, and not read":      {files: []string{"/etc/sudoers.d/a.bak", "BAD"}, blocked: "sudo reads only files with names without a dot"},
		"the main file":          {files: []string{"/etc/sudoers", "BAD"}, blocked: "visudo does not accept /etc/sudoers"},
		"an alias twice":         {files: []string{sudoRule, "Cmnd_Alias A = /a", "/etc/sudoers.d/b", "Cmnd_Alias A = /b"}, blocked: "accepts each of the changed files, and not all"},
		"anybody's":              {files: []string{sudoRule, "app ALL=(ALL) /bin/true\n"}, mode: "0666", blocked: "sudo reads no rules of " + sudoRule},
		"against refit's":        {files: []string{"/etc/sudoers.d/zz", "deploy ALL=(ALL) PASSWD: ALL\n"}, blocked: "sudo would not let it become root"},
		"no longer the included": {files: []string{"/etc/sudoers", "root ALL=(ALL:ALL) ALL\n"}, blocked: "sudo would not let it become root"},
	} {
		t.Run(name, func(t *testing.T) {
			n := sudoNode(t)
			if tc.mode == "" {
				tc.mode = "0440"
			}
			plan := n.plan(sudoRequest(tc.mode, tc.files...))
			if tc.blocked == "" {
				require.Empty(t, plan.Blocked)
				require.Equal(t, []disruption.Action{{Type: disruption.None}}, plan.Actions)
				return
			}
			require.NotEmpty(t, plan.Blocked)
			require.Contains(t, plan.Blocked[0].Reason, tc.blocked)
			require.NotContains(t, plan.Blocked[0].Reason, "BAD")
		})
	}
}

func TestSudoersAreCheckedWhateverAPolicySays(t *testing.T) {
	n := sudoNode(t)
	req := sudoRequest("0440", sudoRule, "BAD")
	req.Rules.Files = append(req.Rules.Files, disruption.Rule{Path: "/etc/sudoers.d", Actions: []disruption.Action{{Type: disruption.None}}, From: "p"})
	require.Len(t, n.plan(req).Blocked, 1)
	n.delete("/usr/sbin/visudo")
	require.Contains(t, n.plan(req).Blocked[0].Reason, "the node has no visudo")
}

func TestSSHDConfigThroughFiles(t *testing.T) {
	n := newTestNode(t)
	n.program("sshd", "! grep -q BAD "+n.root+"/etc/ssh/sshd_config")
	req := sudoRequest("0600", "/etc/ssh/sshd_config", "Port 22\n")
	plan := n.plan(req)
	require.Empty(t, plan.Blocked)
	require.Equal(t, []disruption.Action{{Type: disruption.Reload, Unit: "ssh.service"}}, plan.Actions)
	req = sudoRequest("0600", "/etc/ssh/sshd_config", "BAD\n")
	status := n.fail(req)
	require.Contains(t, status.Message, "sshd -t does not accept the configuration")
	require.Equal(t, "(missing)", n.content("/etc/ssh/sshd_config"), "it was put back")
}
