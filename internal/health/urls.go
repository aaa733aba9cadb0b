package health

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"
)

// URLs are those at which gates may ask Prometheus.
type URLs []*url.URL

// ParseURLs reads prefixes of URLs: a scheme and a host, and maybe a path.
func ParseURLs(prefixes []string) (URLs, error) {
	var out URLs
	for _, p := range prefixes {
		u, err := parseURL(p)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", p, err)
		}
		out = append(out, u)
	}
	return out, nil
}

// parseURL reads a URL by which nothing else is meant than what it begins with.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("it is no URL")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.Opaque != "":
		return nil, errors.New("it is to be like https://prometheus.monitoring.svc:9090")
	case u.User != nil, u.RawQuery != "", u.ForceQuery, u.Fragment != "":
		return nil, errors.New("it is to have no user, query or fragment")
	case u.Path != "" && path.Clean(u.Path) != strings.TrimSuffix(u.Path, "/") && u.Path != "/", u.RawPath != "",
		strings.Contains(u.Path, ";"): // of "..;" some servers take the dots alone
		return nil, errors.New("its path is to be plain")
	}
	u.Host, u.Path = strings.ToLower(u.Host), strings.TrimSuffix(u.Path, "/")
	return u, nil
}

// Allow returns an error unless a gate may ask at its URL.
func (a URLs) Allow(g *Gate) error {
	if g.URL == "" {
		return nil
	}
	u, err := parseURL(g.URL)
	if err != nil {
		return err
	}
	for _, p := range a {
		if u.Scheme == p.Scheme && u.Host == p.Host && (u.Path == p.Path || strings.HasPrefix(u.Path, p.Path+"/")) {
			return nil
		}
	}
	return errors.New("refit may not ask there: whoever runs it says at which URLs it may, with --gate-prometheus-url-prefixes of refit serve")
}
