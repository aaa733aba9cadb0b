package effect

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/disruption"
)

func TestWhatAnotherFileOverridesIsTold(t *testing.T) {
	const (
		sshd     = "#!/bin/sh\n[ \"$*\" = -T ] && printf '%s\\n' 'port 22' 'port 2222' 'passwordauthentication yes' 'maxauthtries 6' 'permitrootlogin without-password' 'x11forwarding no' 'kbdinteractiveauthentication yes' 'maxstartups 10:100:10'\n"
		analyze  = "#!/bin/sh\ncat $REFIT_ROOT/etc/systemd/journald.conf.d/*\n"
		sshFile  = "/etc/ssh/sshd_config.d/90-ours.conf"
		logFile  = "/etc/systemd/journald.conf.d/50-ours.conf"
		logOther = "/etc/systemd/journald.conf.d/90-other.conf"
	)
	for name, tc := range map[string]struct {
		file, content, other string
		without              bool
		want                 []string
	}{
		"what sshd takes": {file: sshFile, content: "X11Forwarding no\nMaxAuthTries 6\nPort 2222\nPermitRootLogin prohibit-password\nBanner none\n"},
		"what it does not": {
			file: sshFile, content: "# ours\nPasswordAuthentication no\nPasswordAuthentication yes\nMaxAuthTries=\"3\"\nMatch User kate\nX11Forwarding yes\n",
			want: []string{
				sshFile + " sets PasswordAuthentication to no, and another file, which counts, to yes: that is what sshd takes",
				sshFile + " sets MaxAuthTries to 3, and another file, which counts, to 6: that is what sshd takes",
			},
		},
		"what it writes otherwise": {file: sshFile, content: "MaxStartups 10\nStreamLocalBindMask 177\nX11Forwarding no # CIS\n"},
		"what it has other words for": {
			file: sshFile, content: "PermitRootLogin no\nMaxAuthTries 3 # CIS\nChallengeResponseAuthentication no\nKbdInteractiveAuthentication no\nMaxStartups 5\n",
			want: []string{
				sshFile + " sets PermitRootLogin to no, and another file, which counts, to without-password: that is what sshd takes",
				sshFile + " sets MaxAuthTries to 3, and another file, which counts, to 6: that is what sshd takes",
				sshFile + " sets ChallengeResponseAuthentication to no, and another file, which counts, to yes: that is what sshd takes",
				sshFile + " sets MaxStartups to 5, and another file, which counts, to 10:100:10: that is what sshd takes",
			},
		},
		"a node whose sshd does not tell": {file: sshFile, content: "PasswordAuthentication no\n", without: true},
		"what journald takes":             {file: logFile, content: "[Journal]\nSystemMaxUse=1G\n", other: "[Journal]\nStorage=volatile\n"},
		"what is in no section": {
			file: logFile, content: "Storage=persistent\n[Journald]\nSystemMaxUse=1G\n[X-Ours]\na=b\n", other: "[Journal]\nStorage=volatile\n",
			want: []string{logFile + " sets Storage, SystemMaxUse outside of the section [Journal], where systemd does not read it"},
		},
		"what another file has in no section": {file: logFile, content: "[Journal]\nSystemMaxUse=1G\n", other: "# /etc/systemd/journald.conf.d/90-other.conf\nSystemMaxUse=2G\n"},
		"what it does not take": {
			file: logFile, content: "[Journal]\nSystemMaxUse = 1G\nDNS=1.1.1.1\n", other: "[Journal]\nSystemMaxUse=2G\nDNS=2.2.2.2\n",
			want: []string{logFile + " sets SystemMaxUse to 1G, and another file, which counts, to 2G: that is what systemd takes"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEffects(t, map[string]string{"/usr/sbin/sshd": sshd, "/usr/bin/systemd-analyze": analyze, tc.file: tc.content, logOther: tc.other})
			for _, program := range []string{"/usr/sbin/sshd", "/usr/bin/systemd-analyze"} {
				require.NoError(t, os.Chmod(filepath.Join(e.Host.Dir, program), 0o755))
				if tc.without {
					require.NoError(t, os.Remove(filepath.Join(e.Host.Dir, program)))
				}
			}
			n, _, err := e.Note(t.Context(), []Change{{Path: tc.file, After: []byte(tc.content), Actions: []disruption.Action{{Type: disruption.Reload, Unit: "ssh.service"}}}}, Base{})
			require.NoError(t, err)
			notes, err := e.Verify(t.Context(), n, false)
			require.NoError(t, err)
			require.Equal(t, tc.want, notes)
		})
	}
}
