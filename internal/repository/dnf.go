package repository

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// dnfOptions are the options of a .repo file that weaken nothing (dnf.conf(5)), by what they may be.
var dnfOptions = map[string]func(value string) error{
	"name": anything, "enabled": anything, "type": anything, "cost": anything, "priority": anything, "countme": anything,
	"module_hotfixes": anything, "skip_if_unavailable": anything, "fastestmirror": anything, "metadata_expire": anything,
	"timeout": anything, "retries": anything, "minrate": anything, "throttle": anything, "bandwidth": anything, "ip_resolve": anything,
	"exclude": anything, "excludepkgs": anything, "includepkgs": anything, "enablegroups": anything, "repo_gpgcheck": anything,
	"sslcacert": anything, "sslclientcert": anything, "sslclientkey": anything, "max_parallel_downloads": anything,
	"gpgcheck": yes, "pkg_gpgcheck": yes, "sslverify": yes, "sslverifystatus": anything,
	"baseurl": from("http", "https", "ftp", "file"), "mirrorlist": from("http", "https", "file"), "metalink": from("http", "https", "file"),
	"gpgkey": from("https", "file"),
}

// folded are the options whose values may go on in the next line. The name of a repository needs no second line, in which somebody could
// see an option.
var folded = []string{"baseurl", "gpgkey", "exclude", "excludepkgs", "includepkgs"}

// section is the head of a section of a .repo file.
var section = regexp.MustCompile(`^\[[A-Za-z0-9_.:-]+\]$`)

// CheckDNF returns an error unless text is a .repo file that weakens no verification.
func CheckDNF(text string) error {
	if err := printable(text); err != nil {
		return err
	}
	var in repo
	for i, line := range lines(text) {
		if err := in.line(line); err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if in.section == "" {
		return errors.New("it names no repository")
	}
	return nil
}

// repo is what was read of a .repo file.
type repo struct {
	section string
	// option is the one that the next line may go on with.
	option string
}

// line checks the next line.
func (r *repo) line(line string) error {
	trimmed := strings.Trim(line, " \t")
	if trimmed == "" {
		r.option = ""
		return nil
	}
	switch line[0] {
	case '#', ';':
		return nil
	case ' ', '\t':
		if !slices.Contains(folded, r.option) {
			return errors.New("it begins with a space and continues no list")
		}
		return dnfOptions[r.option](trimmed)
	case '[':
		if !section.MatchString(trimmed) || strings.EqualFold(trimmed, "[main]") {
			return errors.New("it is not the head of a repository such as [kubernetes]")
		}
		*r = repo{section: trimmed}
		return nil
	}
	name, err := dnfOption(r.section, trimmed)
	r.option = name
	return err
}

// dnfOption checks an option and returns its name.
func dnfOption(in, line string) (string, error) {
	raw, value, is := strings.Cut(line, "=")
	name := strings.ToLower(strings.TrimRight(raw, " \t"))
	check, ok := dnfOptions[name]
	switch {
	case in == "":
		return "", errors.New("it stands before the head of a repository such as [kubernetes]")
	case !is:
		return "", errors.New("it is no option of the form name=value")
	case !ok:
		names := make([]string, 0, len(dnfOptions))
		for known := range dnfOptions {
			names = append(names, known)
		}
		slices.Sort(names)
		return "", fmt.Errorf("option %q is not known as one that weakens nothing; these are: %s", name, strings.Join(names, ", "))
	}
	if err := check(strings.TrimSpace(value)); err != nil {
		return "", fmt.Errorf("option %s: %w", name, err)
	}
	return name, nil
}

func anything(string) error { return nil }

// yes refuses all but the words by which dnf does verify.
func yes(value string) error {
	if !slices.Contains([]string{"1", "yes", "true", "on"}, strings.ToLower(value)) {
		return errors.New("it can only be 1: what is fetched is verified in any case; leave it out, or say 1")
	}
	return nil
}

// from returns a check of URLs.
func from(schemes ...string) func(string) error {
	return func(value string) error {
		for _, w := range strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == '\t' || r == ',' }) {
			if err := fetchable(w, schemes); err != nil {
				return err
			}
		}
		return nil
	}
}
