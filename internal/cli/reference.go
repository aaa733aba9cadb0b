package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Reference returns the page about all commands and their flags, in Markdown.
func Reference() string {
	var b strings.Builder
	b.WriteString(`<!-- Made by make reference. -->

# The command line

Every command exits with 0 if it did what it was asked for, and with 1 if not, with the reason on standard error; where a script can read more out of the
exit status, the command says so. ` + "`refit completion bash`" + `, ` + "`zsh`" + `, ` + "`fish`" + ` and ` + "`powershell`" + ` print what has a shell complete commands, flags, and the names of
Machines, namespaces and Clusters.
`)
	root := newRootCommand()
	root.InitDefaultCompletionCmd()
	reference(&b, root)
	return b.String()
}

// reference writes a command down, and those below it.
func reference(b *strings.Builder, cmd *cobra.Command) {
	if !cmd.IsAvailableCommand() {
		return
	}
	if cmd.Runnable() && cmd.HasParent() && !strings.HasPrefix(cmd.CommandPath(), "refit completion ") {
		fmt.Fprintf(b, "\n## %s\n\n%s.\n\n```console\n%s\n```\n", cmd.CommandPath(), cmd.Short, usage(cmd))
		if long := strings.TrimSpace(cmd.Long); long != "" && cmd.Name() != "completion" {
			fmt.Fprintf(b, "\n```text\n%s\n```\n", long)
		}
		if cmd.Example != "" {
			fmt.Fprintf(b, "\n```console\n%s\n```\n", strings.ReplaceAll(strings.TrimPrefix(cmd.Example, "  "), "\n  ", "\n"))
		}
		flags(b, cmd)
	}
	for _, sub := range cmd.Commands() {
		reference(b, sub)
	}
}

// usage is a command's line, with the words for its flags.
func usage(cmd *cobra.Command) string { return strings.TrimSpace(cmd.UseLine()) }

// flags writes a table of a command's flags.
func flags(b *strings.Builder, cmd *cobra.Command) {
	var rows []string
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		value := strings.Replace(f.DefValue, strings.TrimSuffix(os.TempDir(), "/")+"/", "/tmp/", 1) // it may be elsewhere where this runs
		if value == "[]" {
			value = ""
		}
		if value != "" {
			value = "`" + value + "`"
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s |", name, tableCell(value), tableCell(f.Usage)))
	})
	if len(rows) > 0 {
		fmt.Fprintf(b, "\n| flag | default | |\n|---|---|---|\n%s\n", strings.Join(rows, "\n"))
	}
}

// tableCell is a text in a table.
func tableCell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(text)
}
