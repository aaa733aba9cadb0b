package baseline

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/capi-refit/refit/internal/cloudinit"
	"github.com/capi-refit/refit/internal/node"
)

type ignitionOwner struct {
	ID   *int   `json:"id"`
	Name string `json:"name"`
}

func (o ignitionOwner) String() string {
	switch {
	case o.Name != "":
		return o.Name
	case o.ID != nil:
		return strconv.Itoa(*o.ID)
	default:
		return "root"
	}
}

type ignitionConfig struct {
	Storage struct {
		Files []ignitionFile `json:"files"`
	} `json:"storage"`
	Passwd struct {
		Users []ignitionUser `json:"users"`
	} `json:"passwd"`
}

type ignitionFile struct {
	Path     string        `json:"path"`
	Mode     *int64        `json:"mode"`
	User     ignitionOwner `json:"user"`
	Group    ignitionOwner `json:"group"`
	Append   any           `json:"append"`
	Contents struct {
		Source      string `json:"source"`
		Compression string `json:"compression"`
	} `json:"contents"`
}

type ignitionUser struct {
	Name              string   `json:"name"`
	Gecos             string   `json:"gecos"`
	Groups            []string `json:"groups"`
	HomeDir           string   `json:"homeDir"`
	PrimaryGroup      string   `json:"primaryGroup"`
	Shell             string   `json:"shell"`
	PasswordHash      string   `json:"passwordHash"`
	SSHAuthorizedKeys []string `json:"sshAuthorizedKeys"`
}

// sudoersDir is where the bootstrap provider has Ignition put a file of each user that may use sudo.
const sudoersDir = "/etc/sudoers.d/"

// readIgnition reads an Ignition config.
func (b *collected) readIgnition(data []byte) error {
	var c ignitionConfig
	if err := json.Unmarshal(data, &c); err != nil {
		return errors.New("it is not an Ignition config")
	}
	sudo := map[string]string{} // by user
	for _, f := range c.Storage.Files {
		content, known, err := f.content()
		switch {
		case err != nil:
			return fmt.Errorf("file %s: %w", f.Path, err)
		case !known:
			continue
		}
		mode := ""
		if f.Mode != nil {
			mode = strconv.FormatInt(*f.Mode, 8)
		}
		b.add(f.Path, content, f.User.String()+":"+f.Group.String(), mode)
		if name, ok := strings.CutPrefix(f.Path, sudoersDir); ok {
			if rule, ok := strings.CutPrefix(string(content), name+" "); ok {
				sudo[name] = strings.TrimSpace(rule)
			}
		}
	}
	for _, u := range c.Passwd.Users {
		if u.Name != "" {
			b.users[u.Name] = u.user(sudo[u.Name])
		}
	}
	return nil
}

// content returns a file's bytes, if they are known here.
func (f ignitionFile) content() (content []byte, known bool, err error) {
	appends := f.Append != nil && f.Append != false
	if appends || f.Contents.Source != "" && !strings.HasPrefix(f.Contents.Source, "data:") {
		return nil, false, nil
	}
	content, err = decodeDataURL(f.Contents.Source)
	if err == nil && f.Contents.Compression == "gzip" {
		content, err = cloudinit.Gunzip(content)
	}
	return content, true, err
}

// user returns the account. Ignition does not lock a password that it sets.
func (u ignitionUser) user(sudo string) node.User {
	out := node.User{
		Name: u.Name, Gecos: u.Gecos, Groups: u.Groups, HomeDir: u.HomeDir, PrimaryGroup: u.PrimaryGroup, Shell: u.Shell,
		PasswordHash: u.PasswordHash, Sudo: sudo, SSHAuthorizedKeys: u.SSHAuthorizedKeys,
	}
	if u.PasswordHash != "" {
		out.LockPassword = new(false)
	}
	return out
}

func decodeDataURL(u string) ([]byte, error) {
	header, payload, _ := strings.Cut(strings.TrimPrefix(u, "data:"), ",")
	plain, err := url.PathUnescape(payload)
	if err != nil {
		return nil, errors.New("its content is not a data URL")
	}
	if !strings.HasSuffix(header, ";base64") {
		return []byte(plain), nil
	}
	decoded, err := base64.StdEncoding.DecodeString(plain)
	if err != nil {
		return nil, errors.New("its content is not base64")
	}
	return decoded, nil
}
