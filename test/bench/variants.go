package main

import (
	"bytes"
	"fmt"
	"regexp"
)

// variants is how many requests are made out of the recorded ones: more than refit remembers, so that none is known when its turn comes again.
const variants = 1500

// objectName are the names of the recorded requests' machines and MachineSets.
var objectName = regexp.MustCompile(`"name":"(c1-[a-z0-9-]+)"`)

// changedFile is in the specs that differ.
var changedFile = []byte(`"path":"/etc/demo.conf"`)

// ofOthers returns requests about other machines with the same specs.
func (r hookRequests) ofOthers() hookRequests {
	return r.made("other machines", renamed)
}

// thatDiffer returns requests about other machines, each with a file of its own.
func (r hookRequests) thatDiffer() hookRequests {
	return r.made("all differ", func(body []byte, i int) []byte {
		body = renamed(body, i)
		last := bytes.LastIndex(body, changedFile) // of the desired spec
		if last < 0 {
			return body
		}
		return bytes.Join([][]byte{body[:last], body[last+len(changedFile):]}, fmt.Appendf(changedFile[:len(changedFile):len(changedFile)], `,"owner":"o%d:o"`, i))
	})
}

func (r hookRequests) made(what string, from func(body []byte, i int) []byte) hookRequests {
	out := hookRequests{hook: r.hook, what: what}
	for i := range variants {
		out.bodies = append(out.bodies, from(r.bodies[i%len(r.bodies)], i))
	}
	return out
}

// renamed returns a request about objects with other names.
func renamed(body []byte, i int) []byte {
	seen := map[string]bool{}
	for _, found := range objectName.FindAllSubmatch(body, -1) {
		if name := string(found[1]); !seen[name] {
			seen[name] = true
			body = bytes.ReplaceAll(body, found[1], fmt.Appendf(nil, "%s-%d", name, i))
		}
	}
	return body
}
