package disruption

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// reader is what reads the files below a directory of the built-in table, and which of them by their names. It skips others without a word.
type reader struct {
	dir, program string
	// takes is matched by the path of a file below the directory, and words say what that is.
	takes *regexp.Regexp
	words string
	// ending is what the names end with, or "".
	ending string
	// only is a program that a node has where it is this reader's. Of several readers of a directory the first counts that a node has.
	only string
}

// named returns a reader of the files with an ending. It takes none whose names begin with a dot.
func named(dir, program, ending string) reader {
	return reader{dir: dir, program: program, takes: regexp.MustCompile(`^[^./][^/]*` + regexp.QuoteMeta(ending) + `$`), words: "*" + ending, ending: ending}
}

// Endings of what logrotate and grub-mkconfig take for leftovers.
var (
	leftovers = regexp.MustCompile(`(\.(bak|cfsaved|disabled|dpkg-(bak|del|dist|new|old|tmp)|rpm(new|orig|save)|swp|ucf-(dist|new|old))|,v|~)$|` +
		`\.rhn-cfg-tmp-`)
	garbage = regexp.MustCompile(`(^|/)(#.*#|README[^/]*)$|~$|\.(dpkg-[^/]*|rpmsave|rpmnew|sig)$`)
)

// plain returns a reader of files right in the directory, whatever their names are.
func plain(dir, program, words string) reader {
	return reader{dir: dir, program: program, takes: regexp.MustCompile(`^[^/]+$`), words: words}
}

// readers are those of the built-in table's directories, and of the directories that systemd reads beside these. Not here are directories of
// which files are named elsewhere, as by a static pod's manifest, or by the kubelet's arguments.
var readers = []reader{
	named("/etc/sysctl.d", "systemd-sysctl", ".conf"), // sysctl.d(5), as those below
	named("/run/sysctl.d", "systemd-sysctl", ".conf"),
	named("/usr/local/lib/sysctl.d", "systemd-sysctl", ".conf"),
	named("/usr/lib/sysctl.d", "systemd-sysctl", ".conf"),
	named("/etc/modules-load.d", "systemd-modules-load", ".conf"), // modules-load.d(5)
	named("/run/modules-load.d", "systemd-modules-load", ".conf"),
	named("/etc/tmpfiles.d", "systemd-tmpfiles", ".conf"), // tmpfiles.d(5)
	named("/run/tmpfiles.d", "systemd-tmpfiles", ".conf"),
	named("/usr/local/lib/tmpfiles.d", "systemd-tmpfiles", ".conf"),
	named("/usr/lib/tmpfiles.d", "systemd-tmpfiles", ".conf"),
	named("/etc/modprobe.d", "modprobe", ".conf"),                      // modprobe.d(5)
	named("/etc/udev/rules.d", "systemd-udevd", ".rules"),              // udev(7)
	named("/etc/systemd/resolved.conf.d", "systemd-resolved", ".conf"), // resolved.conf(5)
	named("/etc/systemd/journald.conf.d", "systemd-journald", ".conf"), // journald.conf(5)
	named("/etc/dracut.conf.d", "dracut", ".conf"),                     // dracut.conf(5)
	named("/etc/mkinitcpio.conf.d", "mkinitcpio", ".conf"),             // mkinitcpio.conf(5)
	named("/etc/default/grub.d", "grub-mkconfig", ".cfg"),              // Debian's grub-mkconfig
	named("/etc/netplan", "netplan", ".yaml"),                          // netplan(5)
	named("/etc/containers/registries.d", "CRI-O", ".yaml"),            // containers-registries.d(5)
	named("/etc/crio/policies", "CRI-O", ".json"),                      // crio.conf(5), signature_policy_dir: NAMESPACE.json
	{ // systemd.network(5), systemd.netdev(5), systemd.link(5), and their drop-ins
		dir: "/etc/systemd/network", program: "systemd-networkd", words: "*.network, *.netdev, *.link and their *.d/*.conf",
		takes: regexp.MustCompile(`^[^./][^/]*\.(network|netdev|link)(\.d/[^./][^/]*\.conf)?$`),
	},
	{ // update-ca-certificates(8)
		dir: "/usr/local/share/ca-certificates", program: "update-ca-certificates", words: "*.crt", ending: ".crt", takes: regexp.MustCompile(`\.crt$`),
	},
	{ // NetworkManager's nm-settings-keyfile(5), and nm_keyfile_utils_ignore_filename of its source
		dir: "/etc/NetworkManager/system-connections", program: "NetworkManager", words: "files with names without a dot at the beginning and ~ or .bak at the end",
		takes: regexp.MustCompile(`^[^./]([^/]*[^~/])?$`), ending: ".nmconnection",
	},
	{ // sudoers(5): names with a dot, or with ~ at the end, are skipped
		dir: "/etc/sudoers.d", program: "sudo", words: "files with names without a dot, and without ~ at the end",
		takes: regexp.MustCompile(`^[^./]*[^./~]$`),
	},
	{ // cronie's cron(8), and not_a_crontab of its source
		dir: "/etc/cron.d", program: "crond", words: "files with names of no editor's or package manager's leftovers", only: "crond",
		takes: regexp.MustCompile(`^[^.#/]([^/]*[^~/])?$`),
	},
	{ // Debian's cron(8): the names of run-parts(8)
		dir: "/etc/cron.d", program: "cron", words: "files with names of letters, digits, _ and -", takes: regexp.MustCompile(`^[A-Za-z0-9_-]+$`),
	},
	plain("/etc/logrotate.d", "logrotate", "files without such endings as .bak, .dpkg-old and ~"), // logrotate.conf(5), include and tabooext
	plain("/etc/grub.d", "grub-mkconfig", "files without such endings as .dpkg-old and ~"),        // grub-mkconfig's grub_file_is_not_garbage
	plain("/etc/pki/ca-trust/source/anchors", "p11-kit", "files, and no directories,"),            // update-ca-trust(8)
	{ // the kubelet's staticPodPath: "files starting with dots" are not read, nor are directories
		dir: "/etc/kubernetes/manifests", program: "the kubelet", words: "files with names without a dot at the beginning", takes: regexp.MustCompile(`^[^./][^/]*$`),
	},
}

// skipped are what some readers skip beside what they do not take.
var skipped = map[string]*regexp.Regexp{
	"/etc/logrotate.d":                       leftovers,
	"/etc/grub.d":                            garbage,
	"/etc/NetworkManager/system-connections": regexp.MustCompile(`\.bak$`),
}

// Unsafe reports whether policies say so of the rule for the file p, by which it may be one that nothing reads.
func (r Rules) Unsafe(p string) bool {
	rule, err := r.file(p)
	return err == nil && rule.Unsafe
}

// Skipped returns an error if the program that the file p is for skips files of that name, or nil. has reports whether the node has a
// program. Only an entry of a policy that says unsafe takes the check away.
func (r Rules) Skipped(p string, has func(program string) bool) error {
	if r.Unsafe(p) {
		return nil
	}
	for _, reader := range readers {
		rel, below := strings.CutPrefix(p, reader.dir+"/")
		if !below || reader.only != "" && !has(reader.only) {
			continue
		}
		if reader.reads(rel) {
			return nil
		}
		better := ""
		if name := reader.better(path.Base(rel)); name != "" {
			better = ": name it " + name
		}
		return fmt.Errorf("%s reads only %s below %s%s", reader.program, reader.words, reader.dir, better)
	}
	return nil
}

func (r reader) reads(rel string) bool {
	return r.takes.MatchString(rel) && (skipped[r.dir] == nil || !skipped[r.dir].MatchString(rel))
}

// better returns a name like that of a file that is read, or "".
func (r reader) better(name string) string {
	stem := strings.TrimSuffix(name, path.Ext(name))
	short := strings.Map(func(c rune) rune {
		if strings.ContainsRune(".~#, ", c) {
			return '-'
		}
		return c
	}, strings.Trim(name, ".~"))
	for _, better := range []string{name, name + r.ending, stem + r.ending, stem, short, short + r.ending} {
		if r.otherExtension(name) && better == name+r.ending {
			continue
		}
		if better != "" && r.reads(better) {
			return better
		}
	}
	return ""
}

// otherExtension reports whether a name has an extension that says the same as the ending that is read: .yml, or .pem.
func (r reader) otherExtension(name string) bool {
	others := map[string]string{".yml": ".yaml", ".pem": ".crt", ".cer": ".crt", ".cert": ".crt", ".cfg": ".conf", ".conf": ".cfg"}
	return r.ending != "" && others[path.Ext(name)] == r.ending
}
