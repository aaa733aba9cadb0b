#!/bin/sh
# Makes a test node out of a minimal Debian root. It runs inside that root, both under debootstrap and in a Dockerfile.
set -eu

cp /recipe/entrypoint.sh /entrypoint
chmod 0755 /entrypoint
useradd --create-home --shell /bin/bash refit
printf 'refit ALL=(ALL) NOPASSWD: ALL\n' >/etc/sudoers.d/refit
chmod 0440 /etc/sudoers.d/refit

# Keys are put into each container before its first start, so that known_hosts is known before anybody connects.
rm -f /etc/ssh/ssh_host_*
mkdir -p /etc/ssh/sshd_config.d /etc/ssh/authorized_keys.d
cat >/etc/ssh/sshd_config.d/00-test-node.conf <<'EOF'
UseDNS no
PasswordAuthentication no
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile .ssh/authorized_keys /etc/ssh/authorized_keys.d/%u
EOF

# A service that shows how it was treated: it writes down each start, reload and stop, with the text that a drop-in can set.
cat >/usr/local/bin/demo-service <<'EOF'
#!/bin/sh
say() { echo "$1 ${DEMO_TEXT:-}" >>/var/log/demo.log; }
trap 'say reloaded' HUP
trap 'say stopped; exit 0' TERM
say started
while :; do
	sleep 3600 &
	wait $!
done
EOF
chmod 0755 /usr/local/bin/demo-service
cat >/etc/systemd/system/demo.service <<'EOF'
[Unit]
Description=Demo service that writes its starts and reloads to /var/log/demo.log

[Service]
ExecStart=/usr/local/bin/demo-service
ExecReload=/bin/kill -HUP $MAINPID
KillMode=mixed

[Install]
WantedBy=multi-user.target
EOF
systemctl enable demo.service ssh.service
systemctl set-default multi-user.target

# Two programs keep the time, and a node has one of them: timesyncd is installed, chrony can be with dpkg. Neither may set the
# clock, which is the host's: no server is known beside those that a test names.
mkdir -p /etc/systemd/timesyncd.conf.d /etc/systemd/system/systemd-timesyncd.service.d /opt/chrony
printf '[Time]\nNTP=\nFallbackNTP=\n' >/etc/systemd/timesyncd.conf.d/00-test-node.conf
printf '[Unit]\nConditionVirtualization=\nConditionCapability=\n' >/etc/systemd/system/systemd-timesyncd.service.d/test-node.conf
apt-get clean
apt-get update -q
apt-get install -y -q --no-install-recommends --download-only chrony
mv /var/cache/apt/archives/*.deb /opt/chrony/

# What a container has no use for only makes the boot slower.
systemctl mask systemd-udevd.service systemd-udevd-kernel.socket systemd-udevd-control.socket systemd-udev-trigger.service \
	systemd-modules-load.service systemd-firstboot.service systemd-logind.service systemd-remount-fs.service \
	getty.target console-getty.service dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
	sys-fs-fuse-connections.mount sys-kernel-config.mount proc-sys-fs-binfmt_misc.automount proc-sys-fs-binfmt_misc.mount \
	apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer

# One machine id for all would make them look like one machine.
: >/etc/machine-id
rm -rf /var/cache/apt/archives/*.deb /var/lib/apt/lists/* /usr/share/doc/* /usr/share/man/* /usr/share/locale/* /var/log/*.log
