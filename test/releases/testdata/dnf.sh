# Makes a repository of dnf's, and has the node run Kubernetes 1.36.1 out of it.
set -eu
. /opt/programs.sh
mkdir -p /srv/repository/rpm /etc/rpm /etc/yum.repos.d "$GNUPGHOME"
chmod 0700 "$GNUPGHOME"
key packages
key somebody-else
# Debian, whose packages these are not, has every user keep a database of packages; here it is the system's.
printf '%%_dbpath /var/lib/rpm\n%%__gpg /usr/bin/gpg\n' >/etc/rpm/macros
# What comes with Debian's dnf makes a repository of what was installed before; elsewhere that is for those who want it.
printf '[main]\nenabled = false\n' >/etc/dnf/plugins/local.conf

# package NAME VERSION LINES makes a package out of /tmp/root. LINES are more of its description.
package() {
	cat >/tmp/spec <<-EOF
		%global __os_install_post %{nil}
		%global debug_package %{nil}
		Name: $1
		Version: $2
		Release: 150500.1.1
		Summary: a stand-in for $1
		License: none
		AutoReqProv: no
		$3
		%description
		A stand-in for $1.
		%install
		cp -r /tmp/root/. %{buildroot}
		%files
		$(cd /tmp/root && find . ! -type d | sed 's/^.//')
	EOF
	rpmbuild -bb --quiet --define '_rpmdir /srv/repository/rpm' --define "_topdir /tmp/rpmbuild" /tmp/spec
	rm -r /tmp/root
}

# What macros of systemd's write into the scripts of a package with a unit would restart the kubelet at last.
kubelet_lines() {
	echo 'Epoch: 0'
	echo '%pre'
	hang before
	echo '%post'
	hang after
	echo 'systemctl daemon-reload || :'
	echo 'systemctl restart kubelet.service || :'
}

for version in 1.36.1 1.36.3; do
	for name in kubeadm kubelet kubectl; do
		program $name $version /tmp/root/usr/bin
		lines=
		case $name-$version in
		kubelet-*) unit /tmp/root/usr/lib/systemd/system $version && lines=$(kubelet_lines) ;;
		kubeadm-1.36.3) lines='Requires: cri-tools >= 1.36.0' ;; # which the node does not have yet
		esac
		package $name $version "$lines"
	done
done
program crictl 1.36.0 /tmp/root/usr/bin
package cri-tools 1.36.0 ''
# The shell is none of rpm's here.
mkdir -p /tmp/root/usr/share/shell && touch /tmp/root/usr/share/shell/stand-in
package shell 1 'Provides: /bin/sh'

find /srv/repository/rpm -name '*.rpm' -exec rpmsign --define '_gpg_name packages' --addsign {} + >/dev/null
createrepo_c --quiet /srv/repository/rpm
gpg --batch --quiet --local-user packages --armor --detach-sign /srv/repository/rpm/repodata/repomd.xml
served

# As Kubernetes' own documentation has it: nothing but what says so by name touches these packages. A repository that is away is an error as
# on RHEL, unlike on Debian.
cat >/etc/yum.repos.d/kubernetes.repo <<-'EOF'
	[kubernetes]
	name=Kubernetes
	baseurl=http://127.0.0.1:8080/rpm/
	gpgcheck=1
	repo_gpgcheck=1
	gpgkey=http://127.0.0.1:8080/packages.asc
	exclude=kubelet kubeadm kubectl cri-tools
	skip_if_unavailable=False
EOF
dnf -y -q --disableexcludes=kubernetes install kubeadm-1.36.1 kubelet-1.36.1 kubectl-1.36.1
dnf -q versionlock add kubelet kubeadm
systemctl enable --quiet kubelet.service
systemctl is-active kubelet.service
