// Package holds looks after people's holds of Machines in the server: it releases those that are over, and tells those who edit what owns
// a Machine that its node is held.
package holds
