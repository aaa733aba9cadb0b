// Package audit keeps a log of each command that refit sends to a node, so that somebody else can see afterwards what was done
// where, when and by which instance, and that nothing was changed in the log since.
//
// The log is a file of JSON lines. A command has two: one is on the disk before the command is sent, the other one says how it
// ended. A crash can hide how a command ended, and never that it was sent. What can't be recorded is not sent.
//
// Each line has the SHA-256 of the one before it, and its number. Whoever changes, removes, inserts or moves lines has to write
// all later ones again, and then the last hash is another than the one that was noted elsewhere. What is cut off at the end, and
// a change of the last line, can't be told from the file alone: for that there are signed heads, which package heads publishes where
// who can write the log can't.
//
// A crash in the middle of a write leaves a line that is no entry. It stays: the next entry says how many of them are before
// it, and its hash covers them as well.
//
// No content is in the log: of what is sent there is a SHA-256 only, of an answer nothing, and of an error its kind.
package audit
