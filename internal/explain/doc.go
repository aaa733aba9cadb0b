// Package explain says of an edit of what people have what becomes of which machines: out of the objects as they are and as they will be, and what the
// updaters and policies say, it makes a Forecast.
//
// It is pure. Files and management clusters are read elsewhere, and what the Forecast looks like is package render's. No values of fields are in a
// Forecast, but for names: they may be secret.
package explain
