package kubelet

import (
	"maps"
	"slices"
	"strings"
)

// displaced is what the specs' arguments have taken the place of, by name: how it was written. It is kept on the node, since the
// specs don't say it and kubeadm writes its own arguments only once. The file belongs to root alone.
type displaced map[string][]string

// kubeadmsOwn are the arguments that one version of kubeadm or another writes by itself.
var kubeadmsOwn = []string{
	"cgroup-driver", "cni-bin-dir", "cni-conf-dir", "container-runtime", "container-runtime-endpoint", "hostname-override",
	"network-plugin", "pod-infra-container-image", "register-with-taints",
}

// edit is a change of the file of arguments.
type edit struct {
	was, want wanted
	// known reports that was is all that the specs have ever put there.
	known bool
}

// apply returns the arguments, and what has been displaced, after the change. kubeadm has an extra argument take the place of
// all of its own of that name, and puts the extra arguments last; so does this. Done again it changes nothing.
func (e edit) apply(f flags, memory displaced) (flags, displaced) {
	next := flags{before: f.before, after: f.after}
	keep := merged(memory, nil)
	for _, name := range e.want.names {
		if _, ok := keep[name]; !ok && e.displaces(f, name) {
			keep[name] = f.raws(name)
		}
	}
	for _, fl := range f.list {
		if !e.replaces(f, fl.name) {
			next.list = append(next.list, fl)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(keep)) {
		if e.want.has(name) {
			continue
		}
		if len(next.raws(name)) == 0 && e.was.has(name) { // else somebody has set it on the node since
			next.list = append(next.list, parseRaws(keep[name])...)
		}
		delete(keep, name)
	}
	for _, a := range e.want.args {
		next.list = append(next.list, flag{name: canonical(a.Name), value: a.Value, raw: "--" + a.Name + "=" + a.Value})
	}
	return next, keep
}

// replaces reports whether an argument that is there is the specs' to replace or take away: it has the name of one that is wanted, or is
// one that was. One of which somebody has changed a value on the node stays, with all of its values.
func (e edit) replaces(f flags, name string) bool {
	return name != "" && (e.want.has(name) || e.was.has(name) && slices.Equal(f.values(name), e.was.values[name]))
}

// parseRaws reads arguments as they were written.
func parseRaws(raws []string) []flag { return parseWords(strings.Fields(strings.Join(raws, " "))) }

// displaces reports whether what is there under a name is somebody else's: not the specs' own from before. When it is not known
// what those were, only what kubeadm writes is.
func (e edit) displaces(f flags, name string) bool {
	if e.was.has(name) || slices.Equal(f.values(name), e.want.values[name]) || len(f.values(name)) == 0 {
		return false
	}
	return e.known || slices.Contains(kubeadmsOwn, name)
}

// lost returns the arguments of kubeadm's that would have to come back, but of which nobody knows the values.
func (e edit) lost(memory displaced) []string {
	var names []string
	for _, name := range e.was.names {
		if _, ok := memory[name]; !ok && !e.want.has(name) && slices.Contains(kubeadmsOwn, name) {
			names = append(names, name)
		}
	}
	return names
}

// changed returns the names of the arguments that are not the same in both.
func changed(a, b flags) []string {
	names := map[string]bool{}
	for _, fl := range slices.Concat(a.list, b.list) {
		if fl.name != "" && !slices.Equal(a.values(fl.name), b.values(fl.name)) {
			names[fl.name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
