// Package live reads out of a management cluster what package explain compares: owners, their templates and their machines; and what objects would be if
// they were applied, by a dry run. It writes nothing.
package live
