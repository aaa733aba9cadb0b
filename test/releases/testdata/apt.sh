# Makes a repository of apt's, and has the node run Kubernetes 1.36.1 out of it.
set -eu
. /opt/programs.sh
mkdir -p /srv/repository/deb /etc/apt/keyrings "$GNUPGHOME"
chmod 0700 "$GNUPGHOME"
key packages
key somebody-else

# package NAME VERSION DEPENDS makes a package out of /tmp/root.
package() {
	mkdir -p /tmp/root/DEBIAN
	printf 'Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: nobody <nobody@example.org>\nDescription: a stand-in for %s\n%s' \
		"$1" "$2" "$(dpkg --print-architecture)" "$1" "$3" >/tmp/root/DEBIAN/control
	dpkg-deb --build --root-owner-group /tmp/root /srv/repository/deb >/dev/null
	rm -r /tmp/root
}

# What debhelper writes into the scripts of a package with a unit would restart the kubelet.
kubelet_scripts() {
	mkdir -p /tmp/root/DEBIAN /tmp/root/etc/default
	printf '#!/bin/sh\nset -e\n%s\n' "$(hang before)" >/tmp/root/DEBIAN/preinst
	cat >/tmp/root/DEBIAN/postinst <<-EOF
		#!/bin/sh
		set -e
		$(hang after)
		deb-systemd-helper unmask kubelet.service >/dev/null || true
		if deb-systemd-helper --quiet was-enabled kubelet.service; then
			deb-systemd-helper enable kubelet.service >/dev/null || true
		fi
		systemctl --system daemon-reload >/dev/null || true
		deb-systemd-invoke restart kubelet.service >/dev/null || true
	EOF
	chmod 0755 /tmp/root/DEBIAN/preinst /tmp/root/DEBIAN/postinst
	echo "KUBELET_EXTRA_ARGS= # $1" >/tmp/root/etc/default/kubelet
	echo /etc/default/kubelet >/tmp/root/DEBIAN/conffiles
}

for version in 1.36.1 1.36.3 1.36.4; do
	for name in kubeadm kubelet kubectl; do
		program $name $version /tmp/root/usr/bin
		depends=
		case $name-$version in
		kubelet-*) unit /tmp/root/usr/lib/systemd/system $version && kubelet_scripts $version ;;
		kubeadm-1.36.3) depends='Depends: cri-tools (>= 1.36.0)
' ;; # which the node does not have yet
		esac
		package $name $version-1.1 "$depends"
	done
done
# What calls itself 1.36.4 has another kubelet in it.
program kubelet 1.36.3 /tmp/root/usr/bin
package kubelet 1.36.4-1.1 ''
program crictl 1.36.0 /tmp/root/usr/bin
package cri-tools 1.36.0-1.1 ''

cd /srv/repository/deb
apt-ftparchive packages . >Packages
apt-ftparchive release . >Release
gpg --batch --quiet --local-user packages --clearsign --output InRelease Release
served

# The node reaches no other repository than its own of Kubernetes.
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
cp /srv/repository/packages.asc /etc/apt/keyrings/kubernetes.asc
cat >/etc/apt/sources.list.d/kubernetes.sources <<-'EOF'
	Types: deb
	URIs: http://127.0.0.1:8080/deb/
	Suites: ./
	Signed-By: /etc/apt/keyrings/kubernetes.asc
EOF
apt-get update -q
DEBIAN_FRONTEND=noninteractive apt-get install -q -y kubeadm=1.36.1-1.1 kubelet=1.36.1-1.1 kubectl=1.36.1-1.1
apt-mark hold kubelet kubeadm
echo 'KUBELET_EXTRA_ARGS=--v=2' >/etc/default/kubelet
systemctl is-active kubelet.service
