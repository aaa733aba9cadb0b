# Makes images of system extensions with Kubernetes in them, and has the node run 1.36.1 out of one.
set -eu
. /opt/programs.sh
mkdir -p /srv/repository /opt/extensions /etc/extensions

# image VERSION FILE makes one for the system ID.
image() {
	for name in kubeadm kubelet kubectl; do
		program $name "$1" /tmp/root/usr/bin
	done
	unit /tmp/root/usr/lib/systemd/system "$1"
	mkdir -p /tmp/root/usr/lib/extension-release.d
	printf 'ID=%s\nVERSION_ID=%s\n' "$ID" "$VERSION_ID" >/tmp/root/usr/lib/extension-release.d/extension-release.kubernetes
	mksquashfs /tmp/root "$2" -quiet -no-progress -all-root
	rm -r /tmp/root
}

. /etc/os-release
image 1.36.1 /opt/extensions/kubernetes-v1.36.1.raw
image 1.36.3 /srv/repository/kubernetes-v1.36.3.raw
# What calls itself 1.36.4 is something else, and 1.36.5 is for another system.
image 1.36.3 /srv/repository/kubernetes-v1.36.4.raw
ID=another image 1.36.5 /srv/repository/kubernetes-v1.36.5.raw
served

# A container has a /dev of its own, and mounts that nothing spreads from, unlike a machine.
mknod -m 0660 /dev/loop-control c 10 237
for n in $(seq 0 63); do mknod -m 0660 "/dev/loop$n" b 7 "$n"; done
mount --make-rshared /
ln -s /opt/extensions/kubernetes-v1.36.1.raw /etc/extensions/kubernetes.raw
systemd-sysext merge
systemctl daemon-reload
systemctl start kubelet.service
