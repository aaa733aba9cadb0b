package host

import (
	"context"
	"fmt"
	"path"
	"strings"
)

// Lister is a service manager that shows many units at once.
type Lister interface {
	// List returns the units with these names, in their order, or without names all that are loaded.
	List(ctx context.Context, names ...string) ([]LoadedUnit, error)
}

// LoadedUnit is one of many units.
type LoadedUnit struct {
	Name string
	UnitState
	// Lasting reports whether the unit, once it is active, stays so until somebody stops it.
	Lasting bool
	// Needs are the units that take this one with them when they stop.
	Needs []string
	// Unmet reports whether systemd has not started the unit last, for a condition of the unit's own.
	Unmet bool
}

// Stopped reports whether the unit is not active, and not on its way there.
func (u LoadedUnit) Stopped() bool {
	return u.ActiveState == "inactive" || u.ActiveState == "failed" || u.ActiveState == "deactivating"
}

// IsAmong reports whether a name of the unit is in a set.
func (u LoadedUnit) IsAmong(set map[string]bool) bool {
	for _, name := range append(strings.Fields(u.Names), u.Name) {
		if set[name] {
			return true
		}
	}
	return false
}

var (
	_ Lister = systemctl{}
	_ Lister = limited{}
)

// listed are the properties that a list has.
const listed = "Id,Names,LoadState,ActiveState,UnitFileState,Type,RemainAfterExit,Transient,FragmentPath,RefuseManualStart,StopWhenUnneeded,ConditionResult,ConditionTimestampMonotonic," +
	"BusName,TriggeredBy,WantedBy,RequiredBy,Requires,Requisite,BindsTo,PartOf"

// List implements Lister.
func (s systemctl) List(ctx context.Context, names ...string) ([]LoadedUnit, error) {
	asked := names
	if len(asked) == 0 {
		asked = []string{"*"}
	}
	out, err := s.run(ctx, append([]string{"show", "--property=" + listed, "--"}, asked...)...)
	if err != nil {
		return nil, fmt.Errorf("systemctl show: %w", err)
	}
	var units []LoadedUnit
	for block := range strings.SplitSeq(string(out), "\n\n") {
		values := properties(block)
		if values["Id"] != "" {
			units = append(units, loadedUnit(values))
		}
	}
	if len(names) == 0 {
		return units, nil
	}
	if len(units) != len(names) {
		return nil, fmt.Errorf("systemctl show: %d units were asked for, and it shows %d", len(names), len(units))
	}
	for i := range units {
		units[i].Name = names[i] // which may have become another name of a unit
	}
	return units, nil
}

// properties returns what systemctl shows of one unit.
func properties(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[name] = value
	}
	return values
}

func loadedUnit(v map[string]string) LoadedUnit {
	u := LoadedUnit{Name: v["Id"], UnitState: stateFrom(v), Lasting: lasting(v)}
	u.Unmet = v["ConditionResult"] == "no" && strings.Trim(v["ConditionTimestampMonotonic"], "0") != ""
	for _, property := range []string{"Requires", "Requisite", "BindsTo", "PartOf"} {
		u.Needs = append(u.Needs, strings.Fields(v[property])...)
	}
	return u
}

// lasting leaves out what nobody is to start: units without a file of their own, such as the mounts of pods, and what comes and goes with a
// login or on demand. What starts a unit on demand lasts itself.
func lasting(v map[string]string) bool { //nolint:cyclop // a table: one kind of unit after the other
	if v["LoadState"] != "loaded" || v["FragmentPath"] == "" ||
		v["Transient"] == "yes" || v["RefuseManualStart"] == "yes" || v["StopWhenUnneeded"] == "yes" {
		return false
	}
	onDemand := v["WantedBy"]+v["RequiredBy"] == "" && v["BusName"]+v["TriggeredBy"] != ""
	switch path.Ext(v["Id"]) {
	case ".socket", ".timer":
		return true
	case ".mount":
		return !onDemand
	case ".service":
		endsItself := v["Type"] == "oneshot" && v["RemainAfterExit"] != "yes"
		return !onDemand && !endsItself && !strings.HasPrefix(v["Id"], "user@")
	}
	return false
}

// List implements Lister. A service manager that has no list shows no unit.
func (l limited) List(ctx context.Context, names ...string) ([]LoadedUnit, error) {
	lister, ok := l.units.(Lister)
	if !ok {
		return nil, nil
	}
	ctx, cancel := l.bound(ctx)
	defer cancel()
	return lister.List(ctx, names...)
}
