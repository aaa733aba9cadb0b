// Package ui drives the page of refit ui in a real browser, Chromium. It is a module of its own, so that what drives a browser is no part of refit's.
package ui
