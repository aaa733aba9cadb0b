#!/bin/sh
# Lets user refit in with the key that is put into /etc/ssh/authorized_keys.d/refit when the machine boots.
set -eu
id refit >/dev/null 2>&1 || useradd --create-home --shell /bin/bash refit
printf 'refit ALL=(ALL) NOPASSWD: ALL\n' >/etc/sudoers.d/refit
chmod 0440 /etc/sudoers.d/refit
rm -f /etc/ssh/ssh_host_*
mkdir -p /etc/ssh/sshd_config.d /etc/ssh/authorized_keys.d /etc/systemd/system/ssh.service.d
cat >/etc/ssh/sshd_config.d/00-node.conf <<'EOC'
UseDNS no
PasswordAuthentication no
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile .ssh/authorized_keys /etc/ssh/authorized_keys.d/%u
EOC
# Every machine makes its own host key, when it starts for the first time.
cat >/etc/systemd/system/ssh.service.d/host-key.conf <<'EOC'
[Service]
ExecStartPre=
ExecStartPre=/bin/sh -c '[ -e /etc/ssh/ssh_host_ed25519_key ] || ssh-keygen -q -t ed25519 -N "" -f /etc/ssh/ssh_host_ed25519_key'
ExecStartPre=/usr/sbin/sshd -t
EOC
systemctl enable ssh.service
