package updates

// whileRunning are rows that a machine shows without a reboot.
var whileRunning = []batch{services, trust, networkd, netplan, networkManager, ifupdown}

// aFakeCrio has read its files when it was started or reloaded.
const aFakeCrio = "CRI-O, which Debian does not have: a unit that reads its files when it is started or reloaded"

// containerdBase is what the containerd of the machine has. It pulls nothing, so that nothing depends on a registry.
const containerdBase = `version = 2
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "127.0.0.1:9/pause:1"
[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = "/etc/containerd/certs.d"
`

// containerdUnit is a unit of containerd that is known from the package's.
const containerdUnit = "[Unit]\nDescription=row runtime\n[Service]\nType=notify\nExecStart=/usr/bin/containerd\nDelegate=yes\nKillMode=process\n"

// startUdevd starts what the image has masked, since most containers have no use for it.
const startUdevd = "mount -o remount,rw /sys && systemctl --quiet unmask systemd-udevd.service systemd-udevd-kernel.socket systemd-udevd-control.socket && " +
	"systemctl start systemd-udevd.service"

// services are rows of files that a service, or a program that somebody calls, reads.
var services = batch{
	name: "services",
	prepare: []string{
		"mount -o remount,rw /proc/sys && systemctl --quiet unmask systemd-modules-load.service",
		startUdevd,
		// A kernel that has the module row_builtin, so to speak.
		`d=/lib/modules/$(uname -r) && mkdir -p "$d" && echo kernel/row_builtin.ko >"$d/modules.builtin" && : >"$d/modules.order" && depmod`,
		"cat >/etc/containerd/config.toml <<'EOF'\n" + containerdBase + "EOF\nsystemctl restart containerd.service",
		`rm -f /etc/containers/registries.conf && printf '%s\n' '#!/bin/sh' '# a fake' 'cat /etc/containers/policy.json /etc/containers/registries.conf \
			/etc/containers/registries.d/* /etc/crio/policies/* >/run/crio-has 2>/dev/null' 'exit 0' >/usr/local/bin/crio-reads && chmod 755 /usr/local/bin/crio-reads`,
		`printf '[Service]\nExecStartPre=/usr/local/bin/crio-reads\nExecStart=/bin/sleep infinity\nExecReload=/usr/local/bin/crio-reads\n' >/etc/systemd/system/crio.service`,
		`printf '[Service]\nExecStartPre=/bin/sh -c "cat /etc/kubernetes/credential-providers/* >/run/kubelet-has 2>/dev/null || :"\nExecStart=/bin/sleep infinity\n' >/etc/systemd/system/kubelet.service`,
		"systemctl daemon-reload && systemctl start crio.service kubelet.service",
		`echo row-banner >/opt/row-banner && echo '* * * * * root began=$(cut -d. -f1 /proc/uptime); sleep 1; echo $began >>/run/row-ticks' >/etc/cron.d/ticks`,
		`mkdir -p /root/.ssh /home/refit/.ssh && ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519 && cat /root/.ssh/id_ed25519.pub >>/home/refit/.ssh/authorized_keys`,
	},
	rows: map[string]builtinRow{
		"/var/lib/kubelet/config.json": {
			files: []rowFile{{"/var/lib/kubelet/config.json", `{"auths":{"row.example":{"auth":"cHVsbGVyOnJvdw=="}}}`, "0600"}},
			shows: "skopeo login --get-login --authfile /var/lib/kubelet/config.json row.example 2>&1 || true", want: "puller",
			fake: "the kubelet: skopeo reads the file",
		},
		"/etc/containers/policy.json": {
			files: []rowFile{{"/etc/containers/policy.json", `{"default":[{"type":"reject"}],"transports":{"row":{}}}`, ""}},
			shows: "cat /run/crio-has", want: `"row"`, fake: aFakeCrio,
		},
		"/etc/containers/registries.d": {
			files: []rowFile{{"/etc/containers/registries.d/row.yaml", "docker: {row.example: {lookaside: 'file:///row'}}\n", ""}},
			shows: "cat /run/crio-has", want: "file:///row", fake: aFakeCrio,
		},
		"/etc/crio/policies": {
			files: []rowFile{{"/etc/crio/policies/row.json", `{"default":[{"type":"insecureAcceptAnything"}]}`, ""}},
			shows: "cat /run/crio-has", want: "insecureAcceptAnything\"}]}", fake: aFakeCrio,
		},
		"/etc/containers/registries.conf": {
			files: []rowFile{{"/etc/containers/registries.conf", "[[registry]]\nlocation = \"blocked.example\"\nblocked = true\n", ""}},
			shows: "cat /run/crio-has", want: "blocked.example", fake: aFakeCrio,
		},
		"/etc/containerd/certs.d": {
			files: []rowFile{{"/etc/containerd/certs.d/127.0.0.2:7/hosts.toml", "server = \"http://127.0.0.1:9\"\n[host.\"http://127.0.0.1:9\"]\n", ""}},
			// PullImage of 127.0.0.2:7/row:1. Nothing answers at either address: the error says which was asked.
			shows: `printf '\000\000\000\000\025\012\023\012\021127.0.0.2:7/row:1' >/run/pull && curl --silent --verbose --max-time 60 --http2-prior-knowledge \
				--unix-socket /run/containerd/containerd.sock -H 'content-type: application/grpc' -H 'te: trailers' --data-binary @/run/pull \
				http://localhost/runtime.v1.ImageService/PullImage 2>&1 || true`,
			want: "127.0.0.1:9/v2/row",
		},
		"/etc/containerd/config.toml": {
			files: []rowFile{{"/etc/containerd/config.toml", containerdBase + "[metrics]\n  address = \"127.0.0.1:10011\"\n", ""}},
			shows: "ss -Hltn", want: "127.0.0.1:10011",
		},
		"/etc/containerd/conf.d": {
			files: []rowFile{{"/etc/containerd/conf.d/row.toml", "version = 2\n[debug]\n  address = \"/run/row-debug.sock\"\n", ""}},
			shows: "ss -Hlx", want: "/run/row-debug.sock",
		},
		"/etc/kubernetes/credential-providers": {
			files: []rowFile{{"/etc/kubernetes/credential-providers/config.yaml", "kind: CredentialProviderConfig # of the row\n", ""}},
			shows: "cat /run/kubelet-has", want: "of the row", fake: "the kubelet: a unit that reads the files when it is started",
		},
		"/etc/sysctl.d": {
			files: []rowFile{{"/etc/sysctl.d/90-row.conf", "kernel.domainname = row.example\n", ""}},
			shows: "sysctl -n kernel.domainname", want: "row.example",
		},
		"/run/sysctl.d": {
			files: []rowFile{{"/run/sysctl.d/90-row-run.conf", "net.ipv4.ip_default_ttl = 71\n", ""}},
			shows: "sysctl -n net.ipv4.ip_default_ttl", want: "71",
		},
		"/usr/lib/sysctl.d": {
			files: []rowFile{{"/usr/lib/sysctl.d/90-row-lib.conf", "net.ipv4.tcp_fin_timeout = 47\n", ""}},
			shows: "sysctl -n net.ipv4.tcp_fin_timeout", want: "47",
		},
		"/etc/modules-load.d": {
			files: []rowFile{{"/etc/modules-load.d/row.conf", "row_builtin\n", ""}},
			// By its name: journald does not know the unit of a program that has ended when its message is read.
			shows: `journalctl --sync && journalctl -q -o cat -t systemd-modules-load --since "$(systemctl show -p InactiveExitTimestamp --value systemd-modules-load.service)"`,
			want:  "Module 'row_builtin' is built in", fake: "the module, which is only in the list of those that are built in",
		},
		"/etc/ssh/sshd_config.d": {
			files: []rowFile{{"/etc/ssh/sshd_config.d/90-row.conf", "Port 22\nPort 2201\n", ""}},
			shows: "ss -Hltn", want: ":2201",
		},
		"/etc/ssh/sshd_config": {
			files: []rowFile{{"/etc/ssh/sshd_config", "Include /etc/ssh/sshd_config.d/*.conf\nUsePAM yes\nPrintMotd no\nSubsystem sftp /usr/lib/openssh/sftp-server\nBanner /opt/row-banner\n", ""}},
			shows: "ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes nobody@127.0.0.1 true 2>&1 || true", want: "row-banner",
		},
		"/etc/systemd/system": {
			files: []rowFile{{"/etc/systemd/system/row.service", "[Service]\nExecStart=/bin/sleep infinity\n", ""}},
			shows: "systemctl show -p SubState row.service", want: "SubState=running",
		},
		"/etc/systemd/system/containerd.service": {
			// A file in /etc hides the package's.
			files: []rowFile{{"/etc/systemd/system/containerd.service", containerdUnit, ""}},
			shows: "systemctl show -p Description containerd.service", want: "Description=row runtime",
		},
		"/etc/systemd/system/containerd.service.d": {
			files: []rowFile{{"/etc/systemd/system/containerd.service.d/row.conf", "[Service]\nEnvironment=ROW=drop-in\n", ""}},
			shows: "tr '\\0' '\\n' </proc/$(systemctl show -p MainPID --value containerd.service)/environ", want: "ROW=drop-in",
		},
		"/etc/logrotate.d": {
			files: []rowFile{{"/etc/logrotate.d/row", "/var/log/row.log {\n  rotate 3\n}\n", ""}},
			shows: "rm -f /var/log/row.log* && echo x >/var/log/row.log && logrotate --force --state /run/row.state /etc/logrotate.conf; ls /var/log", want: "row.log.1",
		},
		"/etc/cron.d": {
			files: []rowFile{{"/etc/cron.d/row", "* * * * * root echo row >>/run/row-cron\n", ""}},
			// cron has run whatever it runs in a minute when its other job is done, which sleeps before. A minute that began
			// before the look, or within a second of it, doesn't count: its lines may be those that the look removes.
			shows: `began=$(cut -d. -f1 /proc/uptime); rm -f /run/row-cron /run/row-ticks
				for i in $(seq 700); do awk -v began="$began" '$1 > began + 1 { seen = 1 } END { exit !seen }' /run/row-ticks 2>/dev/null && break; sleep 0.2; done
				cat /run/row-cron 2>/dev/null || true`,
			want: "row",
		},
		"/etc/motd": {
			files: []rowFile{{"/etc/motd", "row-motd\n", ""}},
			shows: "echo exit | ssh -tt -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes refit@127.0.0.1 2>&1", want: "row-motd",
		},
		"/etc/issue": {
			files: []rowFile{{"/etc/issue", "row-issue\n", ""}},
			shows: "script --quiet --return --command 'agetty --show-issue' /dev/null", want: "row-issue",
		},
		"/etc/udev/rules.d": {
			files: []rowFile{{"/etc/udev/rules.d/90-row.rules", `SUBSYSTEM=="net", KERNEL=="row-udev", ENV{ROW}="by the rule"` + "\n", ""}},
			shows: "ip link add row-udev type bridge && udevadm wait --timeout=30 /sys/class/net/row-udev && udevadm info /sys/class/net/row-udev && ip link delete row-udev",
			want:  "ROW=by the rule",
		},
		"/etc/tmpfiles.d": {
			files: []rowFile{{"/etc/tmpfiles.d/row.conf", "d /run/refit-row 0751 0 0 -\n", ""}},
			shows: "stat -c %a /run/refit-row 2>&1 || true", want: "751",
		},
		"/etc/systemd/resolved.conf": {
			files: []rowFile{{"/etc/systemd/resolved.conf", "[Resolve]\nDNS=192.0.2.53\n", ""}},
			shows: "resolvectl dns", want: "192.0.2.53",
		},
		"/etc/systemd/resolved.conf.d": {
			files: []rowFile{{"/etc/systemd/resolved.conf.d/row.conf", "[Resolve]\nDomains=row.example\n", ""}},
			shows: "resolvectl domain", want: "row.example",
		},
		"/etc/systemd/journald.conf": {
			files: []rowFile{{"/etc/systemd/journald.conf", "[Journal]\nSystemMaxUse=17M\nRuntimeMaxUse=17M\n", ""}},
			shows: "journalctl -q -o cat -n 1 MESSAGE_ID=ec387f577b844b8fa948f33cad9a75e6", want: "max 17.0M",
		},
		"/etc/systemd/journald.conf.d": {
			files: []rowFile{{"/etc/systemd/journald.conf.d/row.conf", "[Journal]\nMaxLevelStore=info\n", ""}},
			shows: `id=row-$(cat /proc/sys/kernel/random/uuid); logger -p user.debug -t "$id" x; journalctl --sync; [ -n "$(journalctl -q -t "$id")" ] || echo dropped`,
			want:  "dropped",
		},
		"/etc/sudoers": {
			files: []rowFile{{"/etc/sudoers", "root ALL=(ALL:ALL) ALL\nnobody ALL=(root) NOPASSWD: /usr/bin/id\n@includedir /etc/sudoers.d\n", "0440"}},
			shows: "su -s /bin/sh nobody -c 'sudo -n /usr/bin/id' 2>&1 || true", want: "uid=0(root)",
		},
		"/etc/sudoers.d": {
			files: []rowFile{{"/etc/sudoers.d/row", "nobody ALL=(root) NOPASSWD: /usr/bin/stat\n", "0440"}},
			shows: "su -s /bin/sh nobody -c 'sudo -n /usr/bin/stat -c name:%n /root' 2>&1 || true", want: "name:/root",
		},
	},
}
