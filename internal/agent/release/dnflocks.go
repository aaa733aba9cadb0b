package release

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/capi-refit/refit/internal/agent/host"
)

// versionLocks are those of dnf's plugin of that name.
type versionLocks struct{ *Store }

// locked implements locks. Locks of dnf 5 can't be passed over without taking them off, which staging must not do.
func (v versionLocks) locked(_ context.Context, names []string) ([]string, error) {
	other, _, err := v.host.ReadFile("/etc/dnf/versionlock.toml")
	if err != nil {
		return nil, err
	}
	data, _, err := v.host.ReadFile("/etc/dnf/plugins/versionlock.list")
	if err != nil {
		return nil, err
	}
	var all []string
	for _, name := range names {
		if lists(string(other), func(line string) bool {
			_, value, ok := strings.Cut(line, "=")
			return ok && strings.Trim(strings.TrimSpace(value), `"'`) == name
		}) {
			return nil, fmt.Errorf("package %s is locked in /etc/dnf/versionlock.toml: remove that lock", name)
		}
		if lists(string(data), func(line string) bool {
			rest, ok := strings.CutPrefix(strings.TrimSpace(line), name+"-")
			return ok && rest != "" && rest[0] >= '0' && rest[0] <= '9'
		}) {
			all = append(all, name)
		}
	}
	return all, nil
}

// lists reports whether a text has such a line.
func lists(text string, such func(line string) bool) bool {
	for line := range strings.Lines(text) {
		if such(line) {
			return true
		}
	}
	return false
}

// lock implements locks. What a death has left locked is not locked twice, and of what it has left installed twice one is locked.
func (v versionLocks) lock(ctx context.Context, names []string) error {
	if err := (dnf{packages{Store: v.Store}}).settle(ctx, names); err != nil {
		return err
	}
	already, err := v.locked(ctx, names)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(already, name) })
	if len(names) == 0 {
		return nil
	}
	return v.call(ctx, "add", names)
}

// unlock implements locks.
func (v versionLocks) unlock(ctx context.Context, names []string) error {
	return v.call(ctx, "delete", names)
}

// call asks no repository: the plugin would, and it is about packages that are installed.
func (v versionLocks) call(ctx context.Context, verb string, names []string) error {
	return v.alone(ctx, rpms, func() error {
		_, err := v.host.RunTelling(ctx, host.Command{Name: "dnf", Args: append([]string{"-q", "--disablerepo=*", "versionlock", verb}, names...)})
		return err
	})
}
