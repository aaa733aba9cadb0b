package agent

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// hostsFile is the name of the file of a registry, in its directory below certsDir.
const hostsFile = "hosts.toml"

// registryHosts is what a hostsFile says: how a registry is reached, and what is asked before it.
type registryHosts struct {
	registryHost
	Server string                  `toml:"server"`
	Hosts  map[string]registryHost `toml:"host"`
}

type registryHost struct {
	Capabilities []string       `toml:"capabilities"`
	SkipVerify   *bool          `toml:"skip_verify"`
	OverridePath bool           `toml:"override_path"`
	DialTimeout  string         `toml:"dial_timeout"`
	Header       map[string]any `toml:"header"`
}

// checkHosts returns an error if containerd would not accept a hostsFile. It logs that at each pull, and goes on as if there were no file. The
// error quotes nothing of the file, which can have secrets.
func checkHosts(name string, text []byte) error {
	var c registryHosts
	if err := toml.Unmarshal(text, &c); err != nil {
		where := ""
		if bad := (*toml.DecodeError)(nil); errors.As(err, &bad) {
			line, column := bad.Position()
			where = fmt.Sprintf(" at line %d, column %d", line, column)
		}
		return fmt.Errorf("containerd does not accept %s: it is not TOML, or has a value of another type%s", name, where)
	}
	err := c.check(c.Server)
	for address, host := range c.Hosts {
		if err == nil && address == "" {
			err = errors.New("a host has no address")
		}
		if err == nil {
			err = host.check(address)
		}
	}
	if err != nil {
		return fmt.Errorf("containerd does not accept %s: %w", name, err)
	}
	return nil
}

// check returns an error if containerd would not accept a host at an address. Empty: it is the registry itself.
func (h registryHost) check(address string) error {
	if address != "" && !isRegistryAddress(address) {
		return errors.New("an address is neither an http or https URL with a host nor a host")
	}
	for _, c := range h.Capabilities {
		if !slices.Contains([]string{"pull", "resolve", "push"}, strings.ToLower(c)) {
			return errors.New("a capability is none of pull, resolve and push")
		}
	}
	if _, err := time.ParseDuration(h.DialTimeout); h.DialTimeout != "" && err != nil {
		return errors.New("dial_timeout is no duration, such as 5s")
	}
	return nil
}

// isRegistryAddress reports whether containerd can reach something at an address. It takes what does not begin with http for a host.
func isRegistryAddress(address string) bool {
	if !strings.HasPrefix(address, "http") {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""
}
