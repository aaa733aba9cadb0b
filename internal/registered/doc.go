// Package registered asks runtime extensions that UpdaterRegistrations name: what of a change they make in place, and to make it. What they say is
// not trusted further than that: bodies are bounded, answers have to be those to the question, and an error names whose fault it is where they are not.
package registered
