#!/bin/sh
# Makes kind's image of a machine one that lets user refit in, and that has Debian's update-grub. It runs inside that image.
set -eu
cd /recipe
if ! [ -e /usr/sbin/sshd ] || ! [ -e /usr/bin/sudo ] || ! [ -e /usr/sbin/update-grub ]; then
	apt-get update
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends openssh-server sudo grub2-common
fi
install -m 0755 node-network.sh /usr/local/bin/node-network
install -m 0644 root/etc/systemd/system/node-network.service /etc/systemd/system/node-network.service
systemctl enable node-network.service
sh ./ssh.sh
