// Package render shows a Forecast: as a table that fits a terminal, as JSON or YAML, and as Markdown for a pull request.
package render
