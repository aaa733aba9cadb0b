package baseline

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/internal/cloudinit"
	"github.com/capi-refit/refit/internal/node"
)

type cloudConfig struct {
	WriteFiles []struct {
		Path        string `json:"path"`
		Content     string `json:"content"`
		Encoding    string `json:"encoding"`
		Owner       string `json:"owner"`
		Permissions string `json:"permissions"`
		Append      bool   `json:"append"`
	} `json:"write_files"`
	Users cloudUsers `json:"users"`
	NTP   *cloudNTP  `json:"ntp"`
}

// readCloudConfig reads a cloud-config.
func (b *collected) readCloudConfig(data []byte) error {
	var c cloudConfig
	if err := yaml.Unmarshal(data, &c); err != nil {
		return errors.New("it is not a cloud-config")
	}
	for _, f := range c.WriteFiles {
		if f.Append {
			continue // what it was appended to is not known
		}
		content, err := cloudinit.Decode(f.Encoding, []byte(f.Content))
		if err != nil {
			return fmt.Errorf("file %s: %w", f.Path, err)
		}
		b.add(f.Path, content, f.Owner, f.Permissions)
	}
	for _, u := range c.Users {
		b.users[string(u.Name)] = u.user()
	}
	if c.NTP != nil {
		b.ntp = &node.NTP{Enabled: c.NTP.Enabled == nil || bool(*c.NTP.Enabled), Servers: c.NTP.Servers}
	}
	return nil
}

// cloudNTP is cloud-init's ntp. Its program runs unless it is told otherwise.
type cloudNTP struct {
	Enabled *flag `json:"enabled"`
	Servers lines `json:"servers"`
}

// cloudUsers are cloud-init's users, but for those that are only named: the distribution's own, for one.
type cloudUsers []cloudUser

type cloudUser struct {
	Name              scalar `json:"name"`
	Gecos             scalar `json:"gecos"`
	Groups            lines  `json:"groups"`
	HomeDir           scalar `json:"homedir"`
	PrimaryGroup      scalar `json:"primary_group"`
	Shell             scalar `json:"shell"`
	Passwd            scalar `json:"passwd"`
	HashedPasswd      scalar `json:"hashed_passwd"`
	LockPasswd        *flag  `json:"lock_passwd"`
	Inactive          flag   `json:"inactive"`
	Sudo              lines  `json:"sudo"`
	SSHAuthorizedKeys lines  `json:"ssh_authorized_keys"`
}

// UnmarshalJSON takes those users that are told by more than their name.
func (u *cloudUsers) UnmarshalJSON(data []byte) error {
	var list []json.RawMessage
	if json.Unmarshal(data, &list) != nil {
		return nil // another form of users, which the bootstrap provider does not use
	}
	for _, entry := range list {
		var user cloudUser
		if json.Unmarshal(entry, &user) == nil && user.Name != "" {
			*u = append(*u, user)
		}
	}
	return nil
}

func (u cloudUser) user() node.User {
	out := node.User{
		Name: string(u.Name), Gecos: string(u.Gecos), HomeDir: string(u.HomeDir), PrimaryGroup: string(u.PrimaryGroup),
		Shell: string(u.Shell), PasswordHash: string(u.Passwd), Inactive: bool(u.Inactive), SSHAuthorizedKeys: u.SSHAuthorizedKeys,
	}
	if u.HashedPasswd != "" {
		out.PasswordHash = string(u.HashedPasswd)
	}
	if u.LockPasswd != nil {
		out.LockPassword = new(bool(*u.LockPasswd))
	}
	for _, entry := range u.Groups {
		for g := range strings.SplitSeq(entry, ",") {
			if g = strings.TrimSpace(g); g != "" {
				out.Groups = append(out.Groups, g)
			}
		}
	}
	if len(u.Sudo) == 1 { // several rules are nothing that the specs can say
		out.Sudo = u.Sudo[0]
	}
	return out
}

// scalar is a text, or what YAML has made of one that looks like a number.
type scalar string

// UnmarshalJSON takes any value that is no list and no mapping.
func (s *scalar) UnmarshalJSON(data []byte) error {
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	switch v := value.(type) {
	case string:
		*s = scalar(v)
	case float64, bool:
		*s = scalar(data)
	}
	return nil
}

// flag is true or false, also as a text.
type flag bool

// UnmarshalJSON takes anything but true for false.
func (f *flag) UnmarshalJSON(data []byte) error {
	*f = flag(string(data) == "true" || strings.EqualFold(string(data), `"true"`))
	return nil
}

// lines is a list of texts, or a single one.
type lines []string

// UnmarshalJSON leaves out what is empty or no text.
func (l *lines) UnmarshalJSON(data []byte) error {
	var list []scalar
	if json.Unmarshal(data, &list) != nil {
		var one scalar
		if err := json.Unmarshal(data, &one); err != nil {
			return err
		}
		if string(data) == "true" || string(data) == "false" {
			return nil // sudo: false
		}
		list = []scalar{one}
	}
	for _, s := range list {
		if text := strings.TrimSpace(string(s)); text != "" {
			*l = append(*l, text)
		}
	}
	return nil
}
