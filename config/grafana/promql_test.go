package grafana

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// words are what expressions have beside metrics and labels.
var words = []string{
	"sum", "max", "min", "count", "topk", "by", "or", "and", "unless", "on", "rate", "increase", "histogram_quantile", "vector", "time", "clamp_min",
}

// added are labels that Prometheus adds when it scrapes.
var added = []string{"pod"}

var (
	quoted     = regexp.MustCompile(`"[^"]*"`)
	duration   = regexp.MustCompile(`\[(?:[0-9]+[smhdw]|\$\w+)\]`)
	identifier = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
	number     = regexp.MustCompile(`\b[0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?\b`)
	variable   = regexp.MustCompile(`\$(\w+)`)
)

// check returns an error for an expression with a word that is neither one of PromQL's that are known here, nor a metric that is served, nor a label
// of one in the expression, or with a variable that the dashboard has not.
func check(expr string, metrics map[string][]string, variables map[string]bool) error {
	for _, m := range variable.FindAllStringSubmatch(expr, -1) {
		if !variables[m[1]] {
			return fmt.Errorf("%s: there is no variable $%s", expr, m[1])
		}
	}
	bare := duration.ReplaceAllString(quoted.ReplaceAllString(expr, ""), "")
	for _, pair := range []string{"()", "{}", "[]", `""`} {
		if strings.Count(bare, pair[:1]) != strings.Count(bare, pair[1:]) || strings.ContainsAny(bare, `"[]`) {
			return fmt.Errorf("%s: %s does not match", expr, pair)
		}
	}
	labels := append(labelsOf(expr, metrics), added...)
	found := false
	for _, word := range identifier.FindAllString(number.ReplaceAllString(bare, ""), -1) {
		_, metric := metrics[word]
		found = found || metric
		if !metric && !slices.Contains(words, word) && !slices.Contains(labels, word) {
			return fmt.Errorf("%s: %s is no metric that refit serves, no label of one here, and no word of PromQL that is known here", expr, word)
		}
	}
	if !found {
		return fmt.Errorf("%s: there is no metric", expr)
	}
	return nil
}

// labelsOf returns the labels of the metrics of an expression.
func labelsOf(expr string, metrics map[string][]string) []string {
	out := slices.Clone(added)
	for _, word := range identifier.FindAllString(quoted.ReplaceAllString(expr, ""), -1) {
		out = append(out, metrics[word]...)
	}
	return out
}
