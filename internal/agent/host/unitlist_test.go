package host

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shows has a node's systemctl answer with blocks of properties, and note what it is asked.
func shows(t *testing.T, blocks ...string) (list Lister, asked func() string) {
	t.Helper()
	r := Root{Dir: t.TempDir()}
	require.NoError(t, os.MkdirAll(filepath.Join(r.Dir, "/usr/bin"), 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(r.Dir, "out"), []byte(strings.Join(blocks, "\n\n")+"\n"), 0o600))
	script := "#!/bin/sh\necho \"$*\" >\"$REFIT_ROOT/asked\"\ncat \"$REFIT_ROOT/out\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(r.Dir, "/usr/bin/systemctl"), []byte(script), 0o700))
	list, ok := Limit(FindSystemctl(r), time.Minute).(Lister)
	require.True(t, ok)
	return list, func() string {
		data, err := os.ReadFile(filepath.Join(r.Dir, "asked"))
		require.NoError(t, err)
		return string(data)
	}
}

func TestUnitsThatLast(t *testing.T) {
	const loaded = "\nLoadState=loaded\nActiveState=active\nFragmentPath=/lib/systemd/system/x"
	blocks := map[string]bool{
		"Id=kubelet.service\nType=simple\nWantedBy=multi-user.target" + loaded:            true,
		"Id=by-hand.service\nType=simple\nWantedBy=" + loaded:                             true,
		"Id=NetworkManager.service\nType=dbus\nBusName=a.b\nWantedBy=graphical" + loaded:  true,
		"Id=once.service\nType=oneshot\nRemainAfterExit=yes" + loaded:                     true,
		"Id=containerd.socket" + loaded:                                                   true,
		"Id=apt-daily.timer" + loaded:                                                     true,
		"Id=home.mount\nType=ext4\nWantedBy=local-fs.target" + loaded:                     true,
		"Id=apt-daily.service\nType=oneshot\nRemainAfterExit=no" + loaded:                 false,
		"Id=hostnamed.service\nType=notify\nBusName=a.b\nWantedBy=\nRequiredBy=" + loaded: false,
		"Id=sshd@1.service\nType=simple\nTriggeredBy=sshd.socket\nWantedBy=" + loaded:     false,
		"Id=user@1000.service\nType=notify" + loaded:                                      false,
		"Id=user-runtime-dir@1000.service\nType=oneshot\nStopWhenUnneeded=yes" + loaded:   false,
		"Id=run-1.service\nType=simple\nTransient=yes" + loaded:                           false,
		"Id=refused.service\nType=simple\nRefuseManualStart=yes" + loaded:                 false,
		"Id=pods-volume.mount\nLoadState=loaded\nActiveState=active\nFragmentPath=":       false,
		"Id=deleted.service\nType=simple\nLoadState=not-found\nActiveState=active":        false,
		"Id=system.slice" + loaded:                                                        false,
		"Id=multi-user.target" + loaded:                                                   false,
	}
	list, asked := shows(t, slices.Sorted(maps.Keys(blocks))...)
	units, err := list.List(t.Context())
	require.NoError(t, err)
	require.Len(t, units, len(blocks))
	for block, lasts := range blocks {
		name, _, _ := strings.Cut(strings.TrimPrefix(block, "Id="), "\n")
		i := slices.IndexFunc(units, func(u LoadedUnit) bool { return u.Name == name })
		require.GreaterOrEqual(t, i, 0, name)
		require.Equal(t, lasts, units[i].Lasting, name)
	}
	require.Equal(t, "show --property="+listed+" -- *\n", asked())
}

func TestConditionsThatAreNotMet(t *testing.T) {
	list, _ := shows(t, "Id=a.service\nConditionResult=no\nConditionTimestampMonotonic=4711", "Id=b.service\nConditionResult=yes\nConditionTimestampMonotonic=4711",
		"Id=c.service\nConditionResult=no\nConditionTimestampMonotonic=0")
	units, err := list.List(t.Context())
	require.NoError(t, err)
	require.True(t, units[0].Unmet)
	require.False(t, units[1].Unmet)
	require.False(t, units[2].Unmet, "nobody has tried to start it")
}

func TestUnitsByName(t *testing.T) {
	list, asked := shows(t, "Id=ssh.service\nNames=ssh.service sshd.service\nActiveState=deactivating\nRequires=a.mount b.socket\nPartOf=c.service",
		"Id=-.mount\nActiveState=active")
	units, err := list.List(t.Context(), "sshd.service", "-.mount")
	require.NoError(t, err)
	require.Equal(t, "sshd.service", units[0].Name)
	require.True(t, units[0].Stopped())
	require.Equal(t, []string{"a.mount", "b.socket", "c.service"}, units[0].Needs)
	require.True(t, units[0].IsAmong(map[string]bool{"ssh.service": true}))
	require.False(t, units[1].Stopped())
	require.Equal(t, "show --property="+listed+" -- sshd.service -.mount\n", asked())
	_, err = list.List(t.Context(), "one.service")
	require.ErrorContains(t, err, "1 units were asked for, and it shows 2")
}
