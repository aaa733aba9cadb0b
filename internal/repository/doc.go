// Package repository reads the text by which apt or dnf is told of a repository, and refuses what could have a package manager take
// packages that nobody has signed, or what this package does not understand.
//
// The text is a tenant's. A package manager has many spellings for one thing (yes, 0x1, %74rusted, folded lines), and new options
// with each release. So nothing is searched for that is bad: all of the text is parsed, by a grammar that is stricter than the package
// manager's own, and only options that are known not to weaken anything are let by. Server and node read it by the same rules.
package repository
