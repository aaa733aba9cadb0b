// Package inplace has the nouns that the hooks share with what decides about them and with what makes updates: which machine a request
// is about, what Cluster API will do with an answer, and how an update stands.
package inplace
