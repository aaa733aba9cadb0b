// Package rivals asks other implementations of recurrences what refit's schedule is asked, in a module of its own: whether they agree, and how long they take.
package rivals
