package disruption

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// ActionsFor is Actions for a change of which the contents are known, before and after. Nil stands for a content that is not
// known; that of a file that is not there is empty, and not nil.
//
// The rule that is built in for RegistriesConf has the node drained, in case its pods could no longer get their images, or would
// get other ones under the same tag. By their contents most changes are seen to do neither, and then there is no drain. That a
// file can't be understood is no error: it gets the drain.
//
// A configuration of containerd that moves its directories has the node reboot, unless the policy is unsafe, and so do rules of udev that give
// network interfaces other names.
func (r Rules) ActionsFor(p string, before, after []byte) ([]Action, error) {
	actions, err := r.Actions(p)
	switch {
	case err != nil || before == nil || after == nil:
		return actions, err
	case p == RegistriesConf:
		return r.forRegistries(actions, before, after), nil
	case isContainerdConfig(p) && !r.Unsafe(p) && movesContainers(p, before, after):
		return rebooted(actions), nil
	case within(p, udevRules) && !r.Unsafe(p) && renamesLinks(before, after):
		return rebooted(actions), nil
	}
	return actions, nil
}

func (r Rules) forRegistries(actions []Action, before, after []byte) []Action {
	// With other actions it is not the rule that is built in, and who has made it means what it says.
	rule, _ := r.Files.match(RegistriesConf)
	builtin, _ := Builtin().match(RegistriesConf)
	if rule.From != "" || rule.Path != builtin.Path || !slices.Equal(actions, builtin.Actions) || !harmless(before, after) {
		return actions
	}
	return slices.DeleteFunc(actions, func(a Action) bool { return a.Type == Drain })
}

// registriesConf is what containers-registries.conf(5) has in its version 2.
type registriesConf struct {
	Search []string `toml:"unqualified-search-registries"`

	// What follows is not weighed: it is the same before and after, or the change is not harmless.
	ShortNameMode     string            `toml:"short-name-mode"`
	CredentialHelpers []string          `toml:"credential-helpers"`
	LayerStoreHelper  string            `toml:"additional-layer-store-auth-helper"`
	Aliases           map[string]string `toml:"aliases"`

	Registries []registry `toml:"registry"`
}

// registry says where images come from whose names begin with its prefix.
type registry struct {
	Prefix             string   `toml:"prefix"`
	Location           string   `toml:"location"`
	Blocked            bool     `toml:"blocked"`
	Insecure           bool     `toml:"insecure"`
	MirrorByDigestOnly bool     `toml:"mirror-by-digest-only"`
	Mirrors            []mirror `toml:"mirror"`
}

// mirror is asked for images before the registry is.
type mirror struct {
	Location       string `toml:"location"`
	Insecure       bool   `toml:"insecure"`
	PullFromMirror string `toml:"pull-from-mirror"`
}

// The values of pull-from-mirror.
const (
	pullAll    = "all"
	pullDigest = "digest-only"
	pullTag    = "tag-only"
)

// harmless reports whether a change of registries.conf takes no source of images away, and makes no tag mean another image: names
// are looked up where they were and then elsewhere, and what is added is asked for digests only. It is false for a content that is
// not understood.
func harmless(before, after []byte) bool {
	was, err := parseRegistries(before)
	if err != nil {
		return false
	}
	is, err := parseRegistries(after)
	if err != nil {
		return false
	}
	rest := was.ShortNameMode == is.ShortNameMode && was.LayerStoreHelper == is.LayerStoreHelper &&
		slices.Equal(was.CredentialHelpers, is.CredentialHelpers) && maps.Equal(was.Aliases, is.Aliases)
	return rest && appendedOnly(was.Search, is.Search) && harmlessRegistries(was.Registries, is.Registries)
}

// appendedOnly reports whether a list begins as it did: names are tried in its order.
func appendedOnly(was, is []string) bool {
	return len(is) >= len(was) && slices.Equal(was, is[:len(was)])
}

// maxRegistriesConf is the largest file that is read, in bytes. The parser recurses into lists, a level for each byte if that is what
// is in the file, and a stack that overflows ends the process.
const maxRegistriesConf = 64 << 10

// parseRegistries reads registries.conf as the container runtimes do, which refuse what is refused here. What they know and this
// package does not is refused too, and so is version 1 of the format.
func parseRegistries(data []byte) (*registriesConf, error) {
	if len(data) > maxRegistriesConf {
		return nil, fmt.Errorf("it is larger than %d KiB", maxRegistriesConf>>10)
	}
	var c registriesConf
	if err := toml.NewDecoder(bytes.NewReader(data)).DisallowUnknownFields().Decode(&c); err != nil {
		return nil, errors.New("it is not registries.conf in version 2 of its format") // the error quotes what is in the file
	}
	prefixes := map[string]bool{}
	for i := range c.Registries {
		r := &c.Registries[i]
		if err := r.normalize(); err != nil {
			return nil, fmt.Errorf("registry %d: %w", i+1, err)
		}
		if prefixes[r.Prefix] {
			return nil, fmt.Errorf("registry %d: another one has the same prefix", i+1)
		}
		prefixes[r.Prefix] = true
	}
	return &c, nil
}

// normalize fills in what a registry leaves out.
func (r *registry) normalize() error {
	r.Prefix, r.Location = strings.TrimRight(r.Prefix, "/"), strings.TrimRight(r.Location, "/")
	wildcard := strings.HasPrefix(r.Prefix, "*.")
	switch {
	case r.Prefix == "" && r.Location == "":
		return errors.New("it has neither prefix nor location")
	case r.Prefix == "":
		r.Prefix = r.Location
	case r.Location == "" && !wildcard:
		return errors.New("it has a prefix and no location")
	}
	locations := map[string]bool{}
	for i := range r.Mirrors {
		m := &r.Mirrors[i]
		m.Location = strings.TrimRight(m.Location, "/")
		if m.Location == "" || locations[m.Location] {
			return fmt.Errorf("mirror %d has no location, or that of another one", i+1)
		}
		locations[m.Location] = true
		if err := r.pullFrom(m); err != nil {
			return fmt.Errorf("mirror %d: %w", i+1, err)
		}
	}
	return nil
}

// pullFrom fills in which images are pulled from a mirror.
func (r *registry) pullFrom(m *mirror) error {
	switch {
	case r.MirrorByDigestOnly && m.PullFromMirror != "":
		return errors.New("pull-from-mirror and mirror-by-digest-only exclude each other")
	case r.MirrorByDigestOnly:
		m.PullFromMirror = pullDigest
	case m.PullFromMirror == "":
		m.PullFromMirror = pullAll
	case !slices.Contains([]string{pullAll, pullDigest, pullTag}, m.PullFromMirror):
		return errors.New("pull-from-mirror has a value that is not known")
	}
	return nil
}

// harmlessRegistries reports whether no registry is gone, and each is as it was but for what can do no harm.
func harmlessRegistries(was, is []registry) bool {
	for _, old := range was {
		i := slices.IndexFunc(is, func(r registry) bool { return r.Prefix == old.Prefix })
		if i < 0 || !old.harmlessChange(is[i]) {
			return false
		}
	}
	for _, added := range is {
		old := slices.ContainsFunc(was, func(r registry) bool { return r.Prefix == added.Prefix })
		if !old && !added.harmlessAddition(was) {
			return false
		}
	}
	return true
}

// harmlessChange reports whether every image can be pulled by digest as before, and by tag from no other place than before, and in
// the same order.
func (r registry) harmlessChange(is registry) bool {
	if r.Location != is.Location || r.Blocked != is.Blocked || r.Insecure != is.Insecure {
		return false
	}
	for _, old := range r.Mirrors {
		i := slices.IndexFunc(is.Mirrors, func(m mirror) bool { return m.Location == old.Location })
		if i < 0 || is.Mirrors[i].Insecure != old.Insecure {
			return false
		}
		if now := is.Mirrors[i].PullFromMirror; now != old.PullFromMirror && now != pullDigest {
			return false
		}
	}
	// Of those that give tags there can be fewer. One that was added is not among those that were there.
	left := slices.DeleteFunc(r.tagged(), func(location string) bool { return !slices.Contains(is.tagged(), location) })
	return slices.Equal(left, is.tagged())
}

// tagged returns the mirrors that images are pulled from by tag, in the order in which they are asked.
func (r registry) tagged() []string {
	var out []string
	for _, m := range r.Mirrors {
		if m.PullFromMirror != pullDigest {
			out = append(out, m.Location)
		}
	}
	return out
}

// harmlessAddition reports whether a registry that is new changes nothing but where images may come from that are pulled by digest.
// It takes images away from a registry with a shorter prefix, so that one must not have done anything else with them either.
func (r registry) harmlessAddition(was []registry) bool {
	if !r.digestOnly() {
		return false
	}
	wildcard := strings.HasPrefix(r.Prefix, "*.")
	return !slices.ContainsFunc(was, func(old registry) bool { return !old.digestOnly() && (wildcard || old.covers(r.Prefix)) })
}

// digestOnly reports whether the registry does nothing but name mirrors for images that are pulled by digest, if it does anything.
func (r registry) digestOnly() bool {
	plain := r.Location == r.Prefix || r.Location == "" // for a wildcard: as the image has it
	return plain && !r.Blocked && !r.Insecure && len(r.tagged()) == 0
}

// covers reports whether images with a prefix have been the registry's too, as far as no other one has a longer prefix. For a
// wildcard it rather says so once too often.
func (r registry) covers(prefix string) bool {
	if domain, wildcard := strings.CutPrefix(r.Prefix, "*"); wildcard {
		return strings.Contains(prefix, domain)
	}
	rest, ok := strings.CutPrefix(prefix, r.Prefix)
	return ok && (rest == "" || strings.ContainsAny(rest[:1], ":/@"))
}
