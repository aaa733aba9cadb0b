#!/bin/sh
# Makes what kubeadm's machines and their load balancer have in common out of a minimal Debian root. It runs inside that root.
set -eu
cd /recipe
install -m 0755 entrypoint.sh /entrypoint
install -m 0755 node-network.sh /usr/local/bin/node-network
sh ./ssh.sh
cp -r root/. /

# In the load balancer's container haproxy is all there is. Its image is started with a configuration that asks for more
# connections than the limit of open files may allow; the command line says otherwise.
cat >/usr/local/sbin/haproxy <<'EOC'
#!/bin/sh
exec /usr/sbin/haproxy -n 4000 "$@"
EOC
chmod 0755 /usr/local/sbin/haproxy
mkdir -p /usr/local/etc/haproxy
cat >/usr/local/etc/haproxy/haproxy.cfg <<'EOC'
defaults
  mode tcp
  timeout connect 5s
  timeout client 50s
  timeout server 50s
frontend control-plane
  bind *:6443
EOC

systemctl disable haproxy.service
systemctl enable containerd.service kubelet.service load-images.service node-network.service
systemctl set-default multi-user.target
systemctl mask systemd-udevd.service systemd-udevd-kernel.socket systemd-udevd-control.socket systemd-udev-trigger.service \
	systemd-modules-load.service systemd-firstboot.service systemd-logind.service systemd-remount-fs.service \
	getty.target console-getty.service dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
	sys-fs-fuse-connections.mount sys-kernel-config.mount proc-sys-fs-binfmt_misc.automount proc-sys-fs-binfmt_misc.mount \
	apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer
mkdir -p /lib/modules /etc/cni/net.d /kind

# kube-proxy's image has little but iptables: the program that is all of them, its extensions, and the libraries that either needs.
# libm is among those that only some rules ask for.
iptables=$(readlink -f /usr/sbin/iptables-nft)
extensions=$(dirname "$(find /usr/lib -name libxt_comment.so)")
files="$iptables $extensions/*.so $(find /lib/ /usr/lib/ -name 'libm.so.6' | head -n 1)"
proxy=/kind/kube-proxy
mkdir -p $proxy/usr/sbin $proxy/run $proxy/tmp $proxy/etc
for file in $files; do
	echo "$file"
	ldd "$file" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// { print $1 }'
done | sort -u | while read -r file; do
	mkdir -p "$proxy$(dirname "$file")"
	cp -L "$file" "$proxy$file"
done
for name in iptables ip6tables iptables-save ip6tables-save iptables-restore ip6tables-restore; do
	ln -sf "$iptables" $proxy/usr/sbin/$name
done
tar -C $proxy --numeric-owner -cf /kind/kube-proxy.tar .
rm -rf $proxy

# One machine id for all would make them look like one machine.
: >/etc/machine-id
rm -rf /var/cache/apt/archives/*.deb /var/lib/apt/lists/* /usr/share/doc/* /usr/share/man/* /usr/share/locale/* /var/log/*.log
