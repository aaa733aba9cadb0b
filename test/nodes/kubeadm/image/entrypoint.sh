#!/bin/sh
# What a node needs before its init system starts. It works with all privileges, and without CAP_SYS_RESOURCE too.
mount -o remount,rw /sys 2>/dev/null
mountpoint -q /sys/fs/cgroup && mount -o remount,bind,rw /sys/fs/cgroup 2>/dev/null
for m in /sys/fs/cgroup/*; do
	mountpoint -q "$m" && mount -o remount,bind,rw "$m"
done

# The kubelet is told to keep to the cgroup /kubelet, and expects it to be there.
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
	# In version 2 a cgroup that hands controllers on may hold no processes itself.
	mkdir -p /sys/fs/cgroup/init /sys/fs/cgroup/kubelet
	while read -r pid; do echo "$pid" >/sys/fs/cgroup/init/cgroup.procs; done </sys/fs/cgroup/cgroup.procs
	controllers=$(sed 's/^/+/; s/ / +/g' /sys/fs/cgroup/cgroup.controllers)
	echo "$controllers" >/sys/fs/cgroup/cgroup.subtree_control
	echo "$controllers" >/sys/fs/cgroup/kubelet/cgroup.subtree_control
else
	for m in /sys/fs/cgroup/*; do
		mountpoint -q "$m" && mkdir -p "$m/kubelet"
	done
	# A new cpuset is empty, and takes no processes.
	for file in cpuset.cpus cpuset.mems; do
		[ -e /sys/fs/cgroup/cpuset/$file ] && cat /sys/fs/cgroup/cpuset/$file >/sys/fs/cgroup/cpuset/kubelet/$file
	done
fi

[ -e /dev/kmsg ] || mknod /dev/kmsg c 1 11
mount --make-rshared /
echo 1 >/proc/sys/net/ipv4/ip_forward

# Docker's own name server answers at a loopback address, where pods can't ask it. Nodes need no names but their own.
sed 's/127\.0\.0\.11/192.0.2.1/; /^options/d' /etc/resolv.conf >/etc/resolv.conf.node
cat /etc/resolv.conf.node >/etc/resolv.conf

exec /sbin/init
