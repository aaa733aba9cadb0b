package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// addFiles adds the flag with the files that a command reads. All of them count.
func addFiles(fs *pflag.FlagSet, files *[]string) {
	fs.StringArrayVarP(files, "filename", "f", nil, "File with the policies, in JSON or YAML, or directory of such files, in which other objects are left out; - for standard input. Can be there more than once.")
}

// checkFiles returns an error if standard input would have to be read twice.
func checkFiles(files ...string) error {
	if i := slices.Index(files, "-"); i >= 0 && slices.Contains(files[i+1:], "-") {
		return errors.New("- is there more than once, and standard input can be read only once")
	}
	return nil
}

func readFile(stdin io.Reader, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(name)
}

// once is the value of a flag that takes one, and must not be there twice with another one: the first would be left out without a word. The same
// again is nothing else: completion reads the arguments twice.
type once struct {
	pflag.Value
	name string
	set  *string
}

func (o *once) Set(s string) error {
	if o.set != nil && *o.set != s {
		return fmt.Errorf("it is %q already; --%s can be there only once", o.Value, o.name)
	}
	o.set = &s
	return o.Value.Set(s)
}

// takeOnce has a command and those below it refuse a flag that is there twice, unless it is a list or a switch. The server is left out: the
// arguments of its Deployment are patched by appending, and the last one counts.
func takeOnce(cmd *cobra.Command) {
	if cmd.Name() == "serve" {
		return
	}
	for _, fs := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		fs.VisitAll(func(f *pflag.Flag) {
			_, list := f.Value.(pflag.SliceValue)
			if _, wrapped := f.Value.(*once); !list && !wrapped && f.Value.Type() != "bool" {
				f.Value = &once{Value: f.Value, name: f.Name}
			}
		})
	}
	for _, sub := range cmd.Commands() {
		takeOnce(sub)
	}
}
