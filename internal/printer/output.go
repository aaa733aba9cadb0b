// Package printer shows what commands have found: to people as tables and lines that fit a terminal, to programs as JSON or YAML.
package printer

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// The formats in which something is shown. A command has some of them.
const (
	Text     = "text"  // for people
	Table    = "table" // for people
	Wide     = "wide"  // a table with all that it leaves out otherwise, in lines as long as they get
	JSON     = "json"
	YAML     = "yaml"
	Name     = "name" // of objects, as kubectl takes them
	Markdown = "markdown"
)

// Output is a command's flag --output.
type Output struct {
	Format  string
	formats []string
}

// Add adds the flag to a command that has these formats, the first by default. What is behind a space says what is special about one.
func (o *Output) Add(cmd *cobra.Command, formats ...string) {
	o.formats = make([]string, len(formats))
	for i, f := range formats {
		o.formats[i], _, _ = strings.Cut(f, " ")
	}
	last := len(formats) - 1
	usage := fmt.Sprintf("How to show it: %s or %s.", strings.Join(formats[:last], ", "), formats[last])
	cmd.Flags().StringVarP(&o.Format, "output", "o", o.formats[0], usage)
	complete := cobra.FixedCompletions(o.formats, cobra.ShellCompDirectiveNoFileComp)
	_ = cmd.RegisterFlagCompletionFunc("output", complete) // the flag is there
}

// Check returns an error if the command has no such format. Text and table are one for who does not know which of them it has, and nothing is the default.
// An Output that no command has is right as it is.
func (o *Output) Check() error {
	if len(o.formats) == 0 {
		return nil
	}
	if people := []string{"", Text, Table}; slices.Contains(people, o.Format) && slices.Contains(people, o.formats[0]) {
		o.Format = o.formats[0]
	}
	if !slices.Contains(o.formats, o.Format) {
		return fmt.Errorf("--output is %q and can be %s", o.Format, strings.Join(o.formats, ", "))
	}
	return nil
}

// Print writes a value as JSON or YAML, and reports whether the format is one of these.
func Print(w io.Writer, format string, v any) (bool, error) {
	switch format {
	case JSON:
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return true, enc.Encode(v)
	case YAML:
		data, err := yaml.Marshal(v)
		if err != nil {
			return true, err
		}
		_, err = w.Write(data)
		return true, err
	default:
		return false, nil
	}
}
