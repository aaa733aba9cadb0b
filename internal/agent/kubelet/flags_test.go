package kubelet

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/capi-refit/refit/internal/node"
)

// args are "name=value" pairs.
func args(pairs ...string) *node.Resource {
	k := &node.Kubelet{}
	for _, p := range pairs {
		name, value, _ := strings.Cut(p, "=")
		k.ExtraArgs = append(k.ExtraArgs, node.Arg{Name: name, Value: value})
	}
	return &node.Resource{Kubelet: k}
}

const kubeadmsLine = `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/containerd/containerd.sock --v=2"` + "\n"

func TestEdit(t *testing.T) {
	for name, tc := range map[string]struct {
		file      string
		was, want *node.Resource
		unknown   bool
		memory    displaced
		wantFile  string
		wantKept  displaced
	}{
		"kubeadm's own are kept, the specs' come last, in their order": {
			file: kubeadmsLine, want: args("node-ip=10.0.0.1", "max-pods=200"),
			wantFile: `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/containerd/containerd.sock --v=2 --node-ip=10.0.0.1 --max-pods=200"` + "\n",
		},
		"one that the specs drop goes": {
			file: `KUBELET_KUBEADM_ARGS="--a=1 --max-pods=200"` + "\n", was: args("max-pods=200"), want: args(),
			wantFile: `KUBELET_KUBEADM_ARGS="--a=1"` + "\n",
		},
		"one that somebody has changed on the node stays": {
			file: `KUBELET_KUBEADM_ARGS="--a=1 --max-pods=250"` + "\n", was: args("max-pods=200"), want: args(),
			wantFile: `KUBELET_KUBEADM_ARGS="--a=1 --max-pods=250"` + "\n",
		},
		"a name that comes twice, in order": {
			file: `KUBELET_KUBEADM_ARGS="--feature-gates=A=true"` + "\n", was: args("feature-gates=A=true"),
			want:     args("feature-gates=B=true", "feature-gates=C=false"),
			wantFile: `KUBELET_KUBEADM_ARGS="--feature-gates=B=true --feature-gates=C=false"` + "\n",
		},
		"kubeadm's own that gives way is remembered": {
			file: kubeadmsLine, want: args("container-runtime-endpoint=unix:///x"),
			wantFile: `KUBELET_KUBEADM_ARGS="--v=2 --container-runtime-endpoint=unix:///x"` + "\n",
			wantKept: displaced{"container-runtime-endpoint": {"--container-runtime-endpoint=unix:///run/containerd/containerd.sock"}},
		},
		"and comes back": {
			file: `KUBELET_KUBEADM_ARGS="--v=2 --container-runtime-endpoint=unix:///x"` + "\n", was: args("container-runtime-endpoint=unix:///x"), want: args("a=b"),
			memory:   displaced{"container-runtime-endpoint": {"--container-runtime-endpoint=unix:///y"}},
			wantFile: `KUBELET_KUBEADM_ARGS="--v=2 --container-runtime-endpoint=unix:///y --a=b"` + "\n",
		},
		"but not beside one that is there": {
			file: `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///z"` + "\n", was: args("container-runtime-endpoint=unix:///x"), want: args(),
			memory:   displaced{"container-runtime-endpoint": {"--container-runtime-endpoint=unix:///y"}},
			wantFile: `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///z"` + "\n",
		},
		"what is not known to be somebody else's is not remembered": {
			file: kubeadmsLine, want: args("v=4"), unknown: true,
			wantFile: `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/containerd/containerd.sock --v=4"` + "\n",
		},
		"underscores, words of their own, comments and other variables": {
			file: "# mine\nX=1\nKUBELET_KUBEADM_ARGS='--max_pods 100  --v 2 -x'\nY=\"a b\"\n", was: args("max-pods=100"), want: args("max-pods=200"),
			wantFile: "# mine\nX=1\nKUBELET_KUBEADM_ARGS=\"--v 2 -x --max-pods=200\"\nY=\"a b\"\n",
		},
		"an empty list": {
			file: "KUBELET_KUBEADM_ARGS=\"\"", want: args("a=b"), wantFile: "KUBELET_KUBEADM_ARGS=\"--a=b\"\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := parseFlags([]byte(tc.file))
			require.NoError(t, err)
			e := edit{was: wantedOf(tc.was), want: wantedOf(tc.want), known: !tc.unknown}
			next, kept := e.apply(f, tc.memory)
			require.Equal(t, tc.wantFile, string(next.bytes()))
			require.Equal(t, len(tc.wantKept), len(kept), kept)
			for name, raws := range tc.wantKept {
				require.Equal(t, raws, kept[name])
			}
			again, err := parseFlags(next.bytes())
			require.NoError(t, err)
			twice, keptTwice := e.apply(again, kept)
			require.Equal(t, tc.wantFile, string(twice.bytes()), "the second time")
			require.Equal(t, kept, keptTwice)
		})
	}
}

func TestFilesThatAreNotEdited(t *testing.T) {
	for name, text := range map[string]string{
		"no variable":        "X=1\n",
		"nothing":            "",
		"twice":              kubeadmsLine + kubeadmsLine,
		"quotes within":      `KUBELET_KUBEADM_ARGS="--a=\"secret-value\""` + "\n",
		"a continued line":   "KUBELET_KUBEADM_ARGS=\"--a=secret-value \\\n--b=c\"\n",
		"part of a comment":  "# x \\\n" + kubeadmsLine,
		"a strange letter":   "KUBELET_KUBEADM_ARGS=\"--a=\x01\"\n",
		"quotes of one kind": `KUBELET_KUBEADM_ARGS="--a=b` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseFlags([]byte(text))
			require.ErrorContains(t, err, FlagsFile)
			require.NotContains(t, err.Error(), "secret-value")
		})
	}
}

func TestArgumentsThatTheFileCannotCarry(t *testing.T) {
	for _, value := range []string{"a b", "a\tb", "a\nb", `a"b`, "a'b", `a\b`, "a\u00a0b", "\x00"} {
		require.Error(t, checkArgs(args("x="+value).Kubelet.ExtraArgs), "%q", value)
	}
	for _, name := range []string{"", "-a", "a b", "a\n", `a"`} {
		require.Error(t, checkArgs([]node.Arg{{Name: name}}), "%q", name)
	}
	require.NoError(t, checkArgs(args("eviction-hard=memory.available<5%,nodefs.available<10%", "x=", "y=$HOME;#`").Kubelet.ExtraArgs))
}

// foreign returns the arguments that are nobody's in an edit.
func (e edit) foreign(f flags) []string {
	var raws []string
	for _, fl := range f.list {
		if !e.want.has(fl.name) && !e.was.has(fl.name) {
			raws = append(raws, fl.raw)
		}
	}
	return raws
}

func TestLawsOfEdits(t *testing.T) {
	pair := rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b_c", "b-c", "v", "register-with-taints"}), 0, 5), func(names []string) []string {
		out := slices.Clone(names)
		for i := range out {
			out[i] += "=" + strings.Repeat("x", i%3)
		}
		return out
	})
	rapid.Check(t, func(t *rapid.T) {
		own := pair.Draw(t, "own")
		f := flags{}
		for _, p := range own {
			f.list = append(f.list, parseRaws([]string{"--" + p})...)
		}
		was, want := wantedOf(args(pair.Draw(t, "was")...)), wantedOf(args(pair.Draw(t, "want")...))
		put := edit{want: was, known: true}
		applied, memory := put.apply(f, nil)
		require.Empty(t, applied.differs(was))
		e := edit{was: was, want: want, known: true}
		next, kept := e.apply(applied, memory)
		require.Empty(t, next.differs(want), "all that is wanted is there")
		require.Equal(t, e.foreign(applied), e.foreign(next), "what is nobody's stays")
		twice, keptTwice := e.apply(next, kept)
		require.Equal(t, string(next.bytes()), string(twice.bytes()), "the second time nothing changes")
		require.Equal(t, kept, keptTwice)
		back, forgotten := edit{was: want, want: wantedOf(nil), known: true}.apply(next, kept)
		require.Empty(t, forgotten)
		for _, name := range was.names { // displaced by was, and perhaps kept displaced by want
			if !slices.Equal(f.values(name), was.values[name]) && len(f.values(name)) > 0 {
				require.Equal(t, f.values(name), back.values(name), "what kubeadm had comes back: %s", name)
			}
		}
	})
}

func FuzzFlags(f *testing.F) {
	f.Add([]byte(kubeadmsLine), "max-pods", "200")
	f.Add([]byte("# a\nKUBELET_KUBEADM_ARGS='--a b -x --c'\nY=1"), "a", "")
	f.Add([]byte("KUBELET_KUBEADM_ARGS=--a=1"), "v", "x")
	f.Fuzz(func(t *testing.T, data []byte, name, value string) {
		parsed, err := parseFlags(data)
		if err != nil {
			return
		}
		again, err := parseFlags(parsed.bytes())
		require.NoError(t, err)
		require.Equal(t, parsed.list, again.list, "what is written is read again")
		want := args(name + "=" + value)
		if checkArgs(want.Kubelet.ExtraArgs) != nil {
			return
		}
		e := edit{want: wantedOf(want), known: true}
		next, kept := e.apply(parsed, nil)
		read, err := parseFlags(next.bytes())
		require.NoError(t, err)
		require.Empty(t, read.differs(e.want))
		require.Equal(t, e.foreign(parsed), e.foreign(read))
		twice, _ := e.apply(read, kept)
		require.Equal(t, string(next.bytes()), string(twice.bytes()))
	})
}
