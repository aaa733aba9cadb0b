package updates

// crioUnit is a unit of the fake CRI-O that is known from the one that was there.
const crioUnit = "[Unit]\nDescription=row crio\n[Service]\nExecStartPre=/usr/local/bin/crio-reads\nExecStart=/bin/sleep infinity\n" +
	"ExecReload=/usr/local/bin/crio-reads\n"

// trust are the rows of authorities, and of CRI-O's unit. They restart CRI-O, which those of CRI-O's files only reload: they are not in one
// run with these.
var trust = batch{
	name: "trust",
	prepare: []string{
		"cat >/opt/row-ca.pem <<'EOF'\n" + testCA + "EOF",
		`printf '%s\n' '#!/bin/sh' '# a fake' 'mkdir -p /etc/pki/ca-trust/extracted' 'cat /etc/pki/ca-trust/source/anchors/* >/etc/pki/ca-trust/extracted/bundle.pem' 'exit 0' \
			>/usr/local/bin/update-ca-trust && chmod 755 /usr/local/bin/update-ca-trust`,
	},
	rows: map[string]builtinRow{
		"/etc/systemd/system/crio.service": {
			files: []rowFile{{"/etc/systemd/system/crio.service", crioUnit, ""}},
			shows: "systemctl show -p Description crio.service", want: "Description=row crio", fake: aFakeCrio,
		},
		"/etc/systemd/system/crio.service.d": {
			files: []rowFile{{"/etc/systemd/system/crio.service.d/row.conf", "[Service]\nEnvironment=ROW=drop-in\n", ""}},
			shows: "tr '\\0' '\\n' </proc/$(systemctl show -p MainPID --value crio.service)/environ", want: "ROW=drop-in", fake: aFakeCrio,
		},
		"/usr/local/share/ca-certificates": {
			files: []rowFile{{"/usr/local/share/ca-certificates/row.crt", testCA, ""}},
			shows: "openssl verify -CAfile /etc/ssl/certs/ca-certificates.crt /opt/row-ca.pem 2>&1 || true", want: "row-ca.pem: OK",
		},
		"/etc/pki/ca-trust/source/anchors": {
			files: []rowFile{{"/etc/pki/ca-trust/source/anchors/row.crt", testCA, ""}},
			shows: "openssl verify -CAfile /etc/pki/ca-trust/extracted/bundle.pem /opt/row-ca.pem 2>&1 || true", want: "row-ca.pem: OK",
			fake: "Red Hat's update-ca-trust",
		},
	},
}

// The managers of networks each have a bridge of their own, which leaves the way in alone.
var (
	networkd = batch{
		name:    "systemd-networkd",
		prepare: []string{"systemctl start systemd-networkd.service"},
		rows: map[string]builtinRow{
			"/etc/systemd/network": {
				files: []rowFile{
					{"/etc/systemd/network/90-row.netdev", "[NetDev]\nName=row0\nKind=bridge\n", ""},
					{"/etc/systemd/network/90-row.network", "[Match]\nName=row0\n[Network]\nAddress=192.0.2.17/28\nConfigureWithoutCarrier=yes\nLinkLocalAddressing=no\n", ""},
				},
				shows: "ip -4 -brief address", want: "192.0.2.17/28",
			},
		},
	}
	netplan = batch{
		name:    "netplan",
		prepare: []string{startUdevd, "systemctl start systemd-networkd.service"},
		rows: map[string]builtinRow{
			"/etc/netplan": {
				files: []rowFile{{"/etc/netplan/50-row.yaml", "network:\n  version: 2\n  renderer: networkd\n  bridges:\n    row1: {addresses: [192.0.2.33/28], link-local: []}\n", "0600"}},
				shows: "ip -4 -brief address", want: "192.0.2.33/28",
			},
		},
	}
	networkManager = batch{
		name: "NetworkManager",
		prepare: []string{
			`printf '[keyfile]\nunmanaged-devices=*,except:interface-name:row2\n' >/etc/NetworkManager/conf.d/row.conf && systemctl restart NetworkManager.service`,
		},
		rows: map[string]builtinRow{
			"/etc/NetworkManager/system-connections": {
				files: []rowFile{{"/etc/NetworkManager/system-connections/row.nmconnection", "[connection]\nid=row\nuuid=8a6a52a4-4d1e-4b0f-9d0a-6c2f9d1b7e10\ntype=bridge\n" +
					"interface-name=row2\n[bridge]\nstp=false\n[ipv4]\nmethod=manual\naddress1=192.0.2.49/28\n[ipv6]\nmethod=disabled\n", "0600"}},
				shows: "ip -4 -brief address", want: "192.0.2.49/28",
			},
		},
	}
	ifupdown = batch{
		name: "ifupdown",
		rows: map[string]builtinRow{
			"/etc/network/interfaces": {
				files: []rowFile{{"/etc/network/interfaces", "source /etc/network/interfaces.d/*\n" + interfaceOf("row3", "192.0.2.65/28"), ""}},
				shows: "ip -4 -brief address", want: "192.0.2.65/28",
			},
			"/etc/network/interfaces.d": {
				files: []rowFile{{"/etc/network/interfaces.d/row", interfaceOf("row4", "192.0.2.81/28"), ""}},
				shows: "ip -4 -brief address", want: "192.0.2.81/28",
			},
		},
	}
)

func interfaceOf(name, address string) string {
	return "auto " + name + "\niface " + name + " inet static\n  address " + address +
		"\n  pre-up ip link add " + name + " type bridge\n  post-down ip link delete " + name + "\n"
}

// byBooting are rows that take a reboot. The machine is a container, so its kernel is an empty file.
var byBooting = []batch{boot, dracut}

// aFakeBoot is what stands for a boot.
const aFakeBoot = "the boot loader: a unit that has /proc/cmdline show the first entry of the genuine update-grub's configuration; grub-probe, which knows a disk"

var boot = batch{
	name: "boot",
	prepare: []string{
		`probe=$(command -v grub-probe) && dpkg-divert --quiet --rename --add "$probe" && printf '%s\n' '#!/bin/sh' '# a fake' \
			'case "$*" in *fs_uuid*) echo 00000000-0000-0000-0000-000000000001;; *=fs*) echo ext2;; *device*) echo /dev/vda1;; *) echo;; esac' >"$probe" && chmod 755 "$probe"`,
		`mkdir -p /boot/grub /lib/modules/6.1.0-row && : >/boot/vmlinuz-6.1.0-row && echo CONFIG_RD_GZIP=y >/boot/config-6.1.0-row && cd /lib/modules/6.1.0-row &&
			: >modules.order && : >modules.builtin && depmod 6.1.0-row`,
		"printf 'COMPRESS=gzip\nMODULES=list\n' >/etc/initramfs-tools/conf.d/test && update-initramfs -c -k 6.1.0-row",
		"cat >/etc/systemd/system/fake-bootloader.service <<'EOF'\n" + fakeBootLoader + "EOF\nsystemctl --quiet enable fake-bootloader.service",
	},
	rows: map[string]builtinRow{
		"/etc/default/grub": {
			files: []rowFile{{"/etc/default/grub", "GRUB_TIMEOUT=0\nGRUB_CMDLINE_LINUX_DEFAULT=\"row.file=1\"\n", ""}},
			shows: "cat /proc/cmdline", want: "row.file=1", fake: aFakeBoot,
		},
		"/etc/default/grub.d": {
			files: []rowFile{{"/etc/default/grub.d/50-row.cfg", "GRUB_CMDLINE_LINUX=\"row.dropin=1\"\n", ""}},
			shows: "cat /proc/cmdline", want: "row.dropin=1", fake: aFakeBoot,
		},
		"/etc/grub.d": {
			files: []rowFile{{"/etc/grub.d/40_row", "#!/bin/sh\necho '# row-by-script'\n", "0755"}},
			shows: "cat /boot/grub/grub.cfg", want: "# row-by-script", fake: "the boot loader, which does not boot with what was made",
		},
		"/etc/initramfs-tools": {
			files: []rowFile{{"/etc/initramfs-tools/hooks/row", "#!/bin/sh\n[ \"$1\" = prereqs ] || echo row >\"$DESTDIR/row-by-hook\"\n", "0755"}},
			shows: "lsinitramfs /boot/initrd.img-6.1.0-row", want: "row-by-hook", fake: "the kernel, which does not boot with what was made",
		},
		"/etc/modprobe.d": {
			files: []rowFile{{"/etc/modprobe.d/row.conf", "options row_module level=3\n", ""}},
			shows: "lsinitramfs /boot/initrd.img-6.1.0-row", want: "etc/modprobe.d/row.conf",
			fake: "the kernel, which does not boot with what was made, and has no modules",
		},
	},
}

const fakeBootLoader = `[Unit]
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c "sed -n 's/^[[:space:]]*linux[[:space:]]*/BOOT_IMAGE=/p' /boot/grub/grub.cfg | head -n 1 >/run/cmdline && mount --bind /run/cmdline /proc/cmdline"
[Install]
WantedBy=sysinit.target
`

// dracut is in a run of its own: a node makes its initramfs by one program.
var dracut = batch{
	name:    "dracut",
	prepare: []string{`echo row >/usr/share/row-by-dracut && echo row >/usr/share/row-by-its-file && printf 'dracutmodules="dash"\nno_kernel="yes"\ncompress="cat"\nearly_microcode="no"\n' >/etc/dracut.conf.d/00-test.conf`},
	rows: map[string]builtinRow{
		"/etc/dracut.conf": {
			files: []rowFile{{"/etc/dracut.conf", "install_items+=\" /usr/share/row-by-its-file \"\n", ""}},
			shows: "lsinitrd /boot/initrd.img-6.1.0-row", want: "usr/share/row-by-its-file", fake: "the kernel, which does not boot with what was made",
		},
		"/etc/dracut.conf.d": {
			files: []rowFile{{"/etc/dracut.conf.d/row.conf", "install_items+=\" /usr/share/row-by-dracut \"\n", ""}},
			shows: "lsinitrd /boot/initrd.img-6.1.0-row", want: "usr/share/row-by-dracut", fake: "the kernel, which does not boot with what was made",
		},
	},
}
