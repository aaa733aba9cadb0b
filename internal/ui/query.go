package ui

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// query is what a page asks for. What is empty does not filter.
type query struct {
	namespace, cluster, reason string
	states                     []state
	text                       string // a part of a name: of the namespace, cluster, machine or node
	page                       int    // the first is 1
}

func queryOf(v url.Values) query {
	q := query{namespace: v.Get("namespace"), cluster: v.Get("cluster"), reason: v.Get("reason"), text: strings.ToLower(strings.TrimSpace(v.Get("q"))), page: 1}
	for _, s := range v["state"] {
		if one := state(s); one.rank() >= 0 {
			q.states = append(q.states, one)
		}
	}
	if n, err := strconv.Atoi(v.Get("page")); err == nil && n > 1 {
		q.page = n
	}
	return q
}

// empty reports whether all is asked for.
func (q query) empty() bool {
	return q.namespace == "" && q.cluster == "" && q.reason == "" && q.text == "" && len(q.states) == 0
}

// where reports whether a Machine is where the query looks, whatever its state.
func (q query) where(r *row) bool {
	return (q.namespace == "" || r.Namespace == q.namespace) && (q.cluster == "" || r.Cluster == q.cluster) &&
		q.named(r.Namespace+"/"+r.Cluster, r.Name, r.Node)
}

// how reports whether a Machine is in one of the states that the query looks for, and for its reason.
func (q query) how(r *row) bool {
	return (len(q.states) == 0 || slices.Contains(q.states, r.State)) && (q.reason == "" || r.Reason == q.reason)
}

func (q query) named(names ...string) bool {
	return q.text == "" || slices.ContainsFunc(names, func(name string) bool { return strings.Contains(strings.ToLower(name), q.text) })
}

// paged is a part of a list.
type paged struct {
	Page  int `json:"page"`
	Pages int `json:"pages"`
	Total int `json:"total"`
}

// cut returns the part of a list that a page shows. One that lies behind the end is the last.
func cut[T any](all []T, page, size int) ([]T, paged) {
	p := paged{Total: len(all), Pages: max(1, (len(all)+size-1)/size)}
	p.Page = min(max(page, 1), p.Pages)
	from := (p.Page - 1) * size
	return all[from:min(from+size, len(all))], p
}
