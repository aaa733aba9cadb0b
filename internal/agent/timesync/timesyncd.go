package timesync

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

const (
	timesyncdConf = "/etc/systemd/timesyncd.conf"
	// dropIn comes after all others by its name: the servers of one file are added to those of the files before.
	dropIn = "/etc/systemd/timesyncd.conf.d/zz-refit.conf"
	// cloudInitDropIn is what cloud-init writes when a node is made.
	cloudInitDropIn = "/etc/systemd/timesyncd.conf.d/cloud-init.conf"
	dropInAbout     = "# refit manages this file by the specs of the Machine: edits are lost.\n"
)

// timesyncd is systemd-timesyncd's configuration.
type timesyncd struct {
	kind *Kind
	// texts are those of the files that count, in the order in which they are read.
	texts []string
	own   host.Saved
	cloud host.Saved
}

var _ configuration = (*timesyncd)(nil)

// readTimesyncd reads the configuration as systemd does: the file itself, then the drop-ins in the order of their names, of each
// name the one in the directory that counts most.
func (k *Kind) readTimesyncd() (*timesyncd, error) {
	paths := map[string]string{}
	for _, dir := range []string{"/usr/lib", "/usr/local/lib", "/run", "/etc"} {
		dir = path.Join(dir, "systemd/timesyncd.conf.d")
		entries, err := k.host.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".conf") {
				paths[e.Name()] = path.Join(dir, e.Name())
			}
		}
	}
	order := []string{timesyncdConf}
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		order = append(order, paths[name])
	}
	c := &timesyncd{kind: k}
	for _, p := range order {
		f, err := k.readConf(p)
		if err != nil {
			return nil, err
		}
		c.texts = append(c.texts, string(f.Data))
	}
	var err error
	if c.own, err = k.host.Save(dropIn); err != nil {
		return nil, err
	}
	c.cloud, err = k.readConf(cloudInitDropIn)
	return c, err
}

// readConf reads a file of the configuration. A link to /dev/null, by which one of the distribution's is taken away, is empty.
func (k *Kind) readConf(p string) (host.Saved, error) {
	if info, err := k.host.Stat(p); err == nil && !info.Mode().IsRegular() {
		return host.Saved{}, nil
	}
	return k.host.Save(p)
}

// serversOf adds the servers of one file to those of the files before. An empty list takes them all away.
func serversOf(text string, servers []string) []string {
	section := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = line
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		switch {
		case !ok || section != "[Time]" || strings.TrimSpace(name) != "NTP":
		case strings.TrimSpace(value) == "":
			servers = nil
		default:
			servers = append(servers, strings.Fields(value)...)
		}
	}
	return unique(servers)
}

func (c *timesyncd) effective() []string {
	var servers []string
	for _, text := range c.texts {
		servers = serversOf(text, servers)
	}
	return servers
}

func (c *timesyncd) shows(g goal) bool {
	if len(g.servers) > 0 {
		return slices.Equal(c.effective(), g.servers)
	}
	return !c.own.State.Exists && !c.cloudGoes(g)
}

// cloudGoes reports whether cloud-init's file holds what the specs said before, and no longer say.
func (c *timesyncd) cloudGoes(g goal) bool {
	return c.cloud.State.Exists && len(g.gone) > 0 && slices.Equal(sorted(serversOf(string(c.cloud.Data), nil)), sorted(g.gone))
}

func (c *timesyncd) files() map[string]host.Saved {
	return map[string]host.Saved{dropIn: c.own, cloudInitDropIn: c.cloud}
}

// bring writes refit's file before cloud-init's goes, so that there is always one.
func (c *timesyncd) bring(g goal) (note string, err error) {
	if len(g.servers) == 0 {
		if err := c.kind.host.RemoveFile(dropIn); err != nil {
			return "", err
		}
	} else {
		state, err := c.kind.rootOwned()
		if err != nil {
			return "", err
		}
		text := dropInAbout + strings.Join([]string{"[Time]", "NTP=", "NTP=" + strings.Join(g.servers, " ")}, "\n") + "\n"
		if err := c.kind.host.WriteFile(dropIn, []byte(text), state); err != nil {
			return "", err
		}
	}
	if c.cloudGoes(g) {
		return "", c.kind.host.RemoveFile(cloudInitDropIn)
	}
	return "", nil
}
