#!/bin/sh
# Docker mounts the cgroups of an unprivileged container read-only; systemd as pid 1 has to write its own. They are in a
# cgroup namespace of their own, so this gives nothing of the host's away. Works with cgroup v1 and v2.
mountpoint -q /sys/fs/cgroup && mount -o remount,bind,rw /sys/fs/cgroup 2>/dev/null
for m in /sys/fs/cgroup/*; do
	mountpoint -q "$m" && mount -o remount,bind,rw "$m"
done
exec /sbin/init
