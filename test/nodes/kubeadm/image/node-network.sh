#!/bin/sh
# Writes a CNI configuration for this node, and routes to its neighbours. Node a.b.c.N has the pods 10.244.N.0/24; the routes
# to nodes that do not exist do no harm. So every node is Ready at once, and nothing has to be deployed for it.
set -eu
address=$(ip -4 -o address show dev eth0 | awk '{ sub("/.*", "", $4); print $4; exit }')
prefix=${address%.*} own=${address##*.}
n=2
while [ "$n" -le 254 ]; do
	[ "$n" = "$own" ] || echo "route replace 10.244.$n.0/24 via $prefix.$n"
	n=$((n + 1))
done | ip -batch -
mkdir -p /etc/cni/net.d
cat >/etc/cni/net.d/10-node.conflist <<EOC
{
  "cniVersion": "0.4.0",
  "name": "node",
  "plugins": [
    {
      "type": "ptp",
      "ipMasq": false,
      "mtu": $(cat /sys/class/net/eth0/mtu),
      "ipam": {
        "type": "host-local",
        "dataDir": "/run/cni-node",
        "ranges": [[{"subnet": "10.244.$own.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
EOC
