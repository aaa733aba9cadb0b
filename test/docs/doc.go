// Package docs holds the pages to what tests show: each block of commands says which test runs it, or why none does.
package docs
