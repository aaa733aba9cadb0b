package disruption

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const (
	drained  = "[Drain Reload crio.service]"
	reloaded = "[Reload crio.service]"
)

// conf writes registries.conf: a search list, if it has no "=" in it, and registries.
func conf(search string, registries ...string) string {
	return "unqualified-search-registries = [" + search + "]\n" + strings.Join(registries, "")
}

// reg writes a registry out of its lines.
func reg(lines ...string) string { return "[[registry]]\n" + strings.Join(lines, "\n") + "\n" }

// mir writes a mirror of the registry before it.
func mir(lines ...string) string { return "[[registry.mirror]]\n" + strings.Join(lines, "\n") + "\n" }

func TestRegistriesByMeaning(t *testing.T) {
	const (
		quay     = `location = "quay.io"`
		digest   = `mirror-by-digest-only = true`
		m1, m2   = `location = "m1.local/quay"`, `location = "m2.local/quay"`
		insecure = `insecure = true`
	)
	base := conf(`"a.io", "b.io"`, reg(quay, digest), mir(m1))
	byTag := conf("", reg(quay), mir(m1), mir(m2))
	for name, tc := range map[string]struct{ before, after, want string }{
		"a comment":                    {base, "# mirrors\n" + base, reloaded},
		"the same in other words":      {base, `registry = [{prefix = "quay.io/", location = "quay.io", mirror-by-digest-only = true, mirror = [{location = "m1.local/quay/"}]}]` + "\n" + `unqualified-search-registries = ["a.io", "b.io"]`, reloaded},
		"the search list is appended":  {base, strings.Replace(base, `"b.io"`, `"b.io", "c.io"`, 1), reloaded},
		"the search list is shortened": {base, strings.Replace(base, `, "b.io"`, ``, 1), drained},
		"the search list is reordered": {base, strings.Replace(base, `"a.io", "b.io"`, `"b.io", "a.io"`, 1), drained},
		"it is put in front of":        {base, strings.Replace(base, `"a.io"`, `"c.io", "a.io"`, 1), drained},

		"a new registry, its mirrors by digest only":        {base, base + reg(`location = "x.io"`, digest) + mir(`location = "m.local/x"`), reloaded},
		"a new registry, each mirror by digest only":        {base, base + reg(`location = "x.io"`) + mir(`location = "m.local/x"`, `pull-from-mirror = "digest-only"`), reloaded},
		"a new registry, not by digest only":                {base, base + reg(`location = "x.io"`) + mir(`location = "m.local/x"`), drained},
		"a new registry, one mirror by tag":                 {base, base + reg(`location = "x.io"`) + mir(`location = "m.local/x"`, `pull-from-mirror = "digest-only"`) + mir(`location = "n.local/x"`, `pull-from-mirror = "tag-only"`), drained},
		"a new registry that has nothing looked up":         {base, base + reg(`location = "x.io"`), reloaded},
		"a new registry that is blocked":                    {base, base + reg(`location = "x.io"`, digest, `blocked = true`), drained},
		"a new registry that is insecure":                   {base, base + reg(`location = "x.io"`, digest, insecure), drained},
		"a new registry that is elsewhere":                  {base, base + reg(`prefix = "x.io"`, `location = "y.io"`, digest), drained},
		"a part of a registry by digest only":               {base, base + reg(`location = "quay.io/a"`, digest) + mir(m2), reloaded},
		"a part of a registry with mirrors by tag":          {byTag, byTag + reg(`location = "quay.io/a"`, digest) + mir(m2), drained},
		"what only begins like a registry is no part of it": {byTag, byTag + reg(`location = "quay.iota"`, digest) + mir(m2), reloaded},
		"a part of all below a domain":                      {conf("", reg(`prefix = "*.x.io"`, `location = "y.io"`)), conf("", reg(`prefix = "*.x.io"`, `location = "y.io"`), reg(`location = "a.x.io/b"`, digest)), drained},
		"all below a domain, beside a remapped one":         {conf("", reg(`prefix = "a.x.io"`, `location = "y.io"`)), conf("", reg(`prefix = "a.x.io"`, `location = "y.io"`), reg(`prefix = "*.x.io"`, digest)), drained},
		"all below a domain":                                {base, base + reg(`prefix = "*.x.io"`, digest), reloaded},
		"a registry is removed":                             {base + reg(`location = "x.io"`), base, drained},
		"registries in another order":                       {base + reg(`location = "x.io"`), conf(`"a.io", "b.io"`, reg(`location = "x.io"`), reg(quay, digest), mir(m1)), reloaded},

		"a mirror by digest is added":     {base, base + mir(m2), reloaded},
		"an insecure mirror by digest":    {base, base + mir(m2, insecure), reloaded},
		"a mirror by tag is added":        {byTag, byTag + mir(`location = "m3.local"`), drained},
		"a mirror by tag in front":        {byTag, conf("", reg(quay), mir(`location = "m3.local"`), mir(m1), mir(m2)), drained},
		"a mirror by digest beside those": {byTag, byTag + mir(`location = "m3.local"`, `pull-from-mirror = "digest-only"`), reloaded},
		"a mirror is removed":             {base + mir(m2), base, drained},
		"a mirror becomes insecure":       {base, base + insecure, drained},
		"a mirror becomes by digest only": {byTag, conf("", reg(quay), mir(m1), mir(m2, `pull-from-mirror = "digest-only"`)), reloaded},
		"all mirrors do":                  {byTag, conf("", reg(quay, digest), mir(m1), mir(m2)), reloaded},
		"a mirror becomes by tag only":    {byTag, conf("", reg(quay), mir(m1), mir(m2, `pull-from-mirror = "tag-only"`)), drained},
		"the mirrors become by tag too":   {base, strings.Replace(base, digest, "", 1), drained},
		"pull-from-mirror says all":       {byTag, conf("", reg(quay), mir(m1, `pull-from-mirror = "all"`), mir(m2)), reloaded},
		"mirrors by tag change places":    {byTag, conf("", reg(quay), mir(m2), mir(m1)), drained},
		"mirrors by digest change places": {base + mir(m2), conf(`"a.io", "b.io"`, reg(quay, digest), mir(m2), mir(m1)), reloaded},

		"the prefix is changed":   {base, strings.Replace(base, quay, quay+"\nprefix = \"q.io\"", 1), drained},
		"the location is changed": {conf("", reg(`prefix = "x"`, `location = "y"`)), conf("", reg(`prefix = "x"`, `location = "z"`)), drained},
		"a registry is blocked":   {base, strings.Replace(base, quay, quay+"\nblocked = true", 1), drained},
		"one no longer is":        {strings.Replace(base, quay, quay+"\nblocked = true", 1), base, drained},
		"a registry is insecure":  {base, strings.Replace(base, quay, quay+"\ninsecure = true", 1), drained},

		"another mode of short names":     {base, "short-name-mode = \"enforcing\"\n" + base, drained},
		"an alias more":                   {base, base + "[aliases]\na = \"quay.io/a\"\n", drained},
		"aliases as before":               {"[aliases]\na = \"quay.io/a\"\n", "[aliases]\n\"a\" = 'quay.io/a'\n", reloaded},
		"another helper":                  {base, "credential-helpers = [\"pass\"]\n" + base, drained},
		"a field that is not known":       {base, "new-field = 1\n" + base, drained},
		"one that was there before":       {"new-field = 1\n" + base, base, drained},
		"a field of a mirror":             {base, base + "new-field = 1\n", drained},
		"version 1":                       {"[registries.search]\nregistries = [\"a.io\"]\n", "[registries.search]\nregistries = [\"a.io\", \"b.io\"]\n", drained},
		"what does not parse":             {base, base + "[[", drained},
		"what did not parse":              {"[[", base, drained},
		"another type":                    {base, strings.Replace(base, "true", `"true"`, 1), drained},
		"two registries of one prefix":    {base, base + reg(quay, digest), drained},
		"a registry of no name":           {base, base + reg(digest), drained},
		"a prefix and no location":        {base, base + reg(`prefix = "x.io"`, digest), drained},
		"a mirror of no name":             {base, base + mir(insecure), drained},
		"a mirror twice":                  {base, base + mir(m1), drained},
		"pull-from-mirror beside digests": {base, base + mir(m2, `pull-from-mirror = "digest-only"`), drained},
		"pull-from-mirror is not known":   {byTag, byTag + mir(`location = "m3.local"`, `pull-from-mirror = "digest"`), drained},

		"the file is removed with its registries": {base, "", drained},
		"the file is removed and was empty":       {"# nothing\n", "", reloaded},
		"the file is new, by digest only":         {"", base, reloaded},
		"the file is new, by tag":                 {"", byTag, drained},
	} {
		t.Run(name, func(t *testing.T) {
			actions, err := BuiltinRules().ActionsFor(RegistriesConf, []byte(tc.before), []byte(tc.after))
			require.NoError(t, err)
			require.Equal(t, tc.want, fmt.Sprint(actions))
		})
	}
}

func TestWhenRegistriesAreNotCompared(t *testing.T) {
	before, after := []byte("# a\n"), []byte("# b\n")
	over := func(path string, actions ...Action) Rules {
		return Override(BuiltinRules(), policy("p", map[string][]Action{path: actions}))
	}
	for name, tc := range map[string]struct {
		rules         Rules
		path          string
		before, after []byte
		want          string
	}{
		"both are known":               {BuiltinRules(), RegistriesConf, before, after, reloaded},
		"policies name something else": {over("/etc/containers", action(Drain)), RegistriesConf, before, after, reloaded},
		"the one before is not known":  {BuiltinRules(), RegistriesConf, nil, after, drained},
		"the one after is not known":   {BuiltinRules(), RegistriesConf, before, nil, drained},
		"a policy wants the drain":     {over(RegistriesConf, action(Drain), action(Reload, "crio.service")), RegistriesConf, before, after, drained},
		"a policy wants something":     {over(RegistriesConf, action(Drain)), RegistriesConf, before, after, "[Drain]"},
		"a file of another name":       {over("/etc/other.conf", action(Drain)), "/etc/other.conf", before, after, "[Drain]"},
	} {
		t.Run(name, func(t *testing.T) {
			actions, err := tc.rules.ActionsFor(tc.path, tc.before, tc.after)
			require.NoError(t, err)
			require.Equal(t, tc.want, fmt.Sprint(actions))
		})
	}
	_, err := BuiltinRules().ActionsFor("/etc/fstab", before, after)
	require.Error(t, err)
}

// someRegistries draws contents of registries.conf that are as the runtimes want them.
func someRegistries() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		b.WriteString(conf(strings.Join(rapid.SliceOfNDistinct(rapid.SampledFrom([]string{`"a.io"`, `"b.io"`}), 0, 2, rapid.ID).Draw(t, "search"), ",")))
		for _, location := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"quay.io", "quay.io/a", "x.io"}), 0, 3, rapid.ID).Draw(t, "registries") {
			digest := rapid.Bool().Draw(t, "digest")
			b.WriteString(reg(fmt.Sprintf("location = %q\nmirror-by-digest-only = %t", location, digest)))
			for _, m := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"m1", "m2", "m3"}), 0, 3, rapid.ID).Draw(t, "mirrors") {
				b.WriteString(mir(fmt.Sprintf("location = %q", m)))
				if from := rapid.SampledFrom([]string{"", pullAll, pullDigest, pullTag}).Draw(t, "from"); from != "" && !digest {
					fmt.Fprintf(&b, "pull-from-mirror = %q\n", from)
				}
			}
		}
		return b.String()
	})
}

func TestHarmlessLaws(t *testing.T) {
	drawn := someRegistries()
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := []byte(drawn.Draw(t, "a")), []byte(drawn.Draw(t, "b")), []byte(drawn.Draw(t, "c"))
		require.True(t, harmless(a, a), "no change is harmless")
		if harmless(a, b) && harmless(b, c) {
			require.True(t, harmless(a, c), "what is harmless step by step is harmless at once")
		}
		was, err := parseRegistries(a)
		require.NoError(t, err)
		is, err := parseRegistries(b)
		require.NoError(t, err)
		if !harmless(a, b) {
			return
		}
		for _, image := range []string{"quay.io", "quay.io/a", "x.io"} {
			require.Subset(t, was.tagSources(image), is.tagSources(image), "a tag of %s comes from no other place", image)
		}
	})
}

// tagSources are the mirrors that are asked for a tag of the image.
func (c *registriesConf) tagSources(image string) []string {
	var best registry
	for _, r := range c.Registries {
		if r.covers(image) && len(r.Prefix) >= len(best.Prefix) {
			best = r
		}
	}
	return best.tagged()
}

func FuzzRegistries(f *testing.F) {
	f.Add([]byte("unqualified-search-registries = [\"a.io\"]\n[[registry]]\nprefix = \"*.x.io\"\n[[registry.mirror]]\nlocation = \"m\"\npull-from-mirror = \"all\"\n"), []byte("[aliases]\na = \"b\"\n"))
	f.Add([]byte("[registries.search]\nregistries = []\n"), []byte(""))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		was, err := parseRegistries(before)
		require.Equal(t, err == nil, harmless(before, before), "what is understood is the same as itself")
		is, errAfter := parseRegistries(after)
		if !harmless(before, after) {
			return
		}
		require.NoError(t, err)
		require.NoError(t, errAfter)
		require.GreaterOrEqual(t, len(is.Registries), len(was.Registries))
		require.GreaterOrEqual(t, len(is.Search), len(was.Search))
	})
}

// TestRegistriesConfOfBracketsIsNotParsed: the parser would recurse until the process ends.
func TestRegistriesConfOfBracketsIsNotParsed(t *testing.T) {
	plain := []byte("unqualified-search-registries = []\n")
	for _, brackets := range []string{"[", "{a=", "[[{"} {
		content := []byte("a = " + strings.Repeat(brackets, 10<<20/len(brackets)))
		actions, err := BuiltinRules().ActionsFor(RegistriesConf, plain, content)
		require.NoError(t, err)
		require.Contains(t, types(actions), Drain, "what is not understood gets the drain")
	}
}
