// Package ui serves a page that shows a fleet: which machine is how far, what waits and until when, when changes may start, and one update in all
// its parts. It reads the management cluster with the rights of whoever starts it, on loopback, and writes nothing.
package ui
