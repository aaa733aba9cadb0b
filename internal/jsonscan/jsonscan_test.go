package jsonscan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/jsonscan"
)

func TestScan(t *testing.T) {
	for data, want := range map[string]jsonscan.Shape{
		``:                            {Values: 1},
		`1`:                           {Values: 1},
		`[]`:                          {Depth: 1, Values: 2},
		`{"a":[{"bcd":1},{}]}`:        {Depth: 3, Values: 6, Name: 3},
		`"[[["`:                       {Values: 1},
		`["[\"[", "\\"]`:              {Depth: 1, Values: 3},
		`{"a":":\\\"{"}`:              {Depth: 1, Values: 2, Name: 1},
		`]]]][`:                       {Depth: 1, Values: 2},
		`["open`:                      {Depth: 1, Values: 2},
		strings.Repeat(`{"a":`, 1000): {Depth: 1000, Values: 1001, Name: 1},
		`["` + strings.Repeat(`\`, 1001) + `"[[[[`: {Depth: 1, Values: 2},
	} {
		require.Equal(t, want, jsonscan.Scan([]byte(data)), data[:min(40, len(data))])
	}
}

func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct{ data, want string }{
		"as deep as may be":   {strings.Repeat("[", 100) + strings.Repeat("]", 100), ""},
		"deeper":              {strings.Repeat("[", 101) + strings.Repeat("]", 101), "nest 101 deep"},
		"brackets only":       {strings.Repeat("[", 20<<20), "deep"},
		"as many as may be":   {"[" + strings.Repeat("1,", 399_998) + "1]", ""},
		"more values":         {"[" + strings.Repeat("1,", 400_000) + "1]", "400002 values"},
		"a long text":         {`{"a":"` + strings.Repeat("x", 10<<20) + `"}`, ""},
		"a long name":         {`{"` + strings.Repeat("x", 513) + `" : 1}`, "has 513 bytes"},
		"a name of the bound": {`{"` + strings.Repeat("x", 512) + `":1}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := jsonscan.Check([]byte(tc.data))
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// FuzzScan compares the shape with what encoding/json takes data for: of valid JSON it is the same, and of what is not it is no
// smaller than what the decoder gets to see.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{`{"a":[{"b":"\"["}],"cd":{}}`, `[[[`, `"\\"`, `{"a":1}]`, `[1,"]`, `{"\u0041":":"}`, `nul[`, "[\xff]", `{"a" :1,"a":{"b":[]}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := jsonscan.Scan(data)
		var parts jsonscan.Scanner
		for i := range data {
			parts.Write(data[i : i+1])
		}
		require.Equal(t, s, parts.Shape(), "it does not matter in which parts it arrives")
		seen := decoded(data)
		require.GreaterOrEqual(t, s.Depth, seen.Depth)
		require.GreaterOrEqual(t, s.Values, seen.Values)
		if json.Valid(data) {
			require.Equal(t, seen.Depth, s.Depth)
			require.LessOrEqual(t, s.Values, 2*seen.Values)
		}
	})
}

// decoded is the shape as far as encoding/json's decoder gets.
func decoded(data []byte) (s jsonscan.Shape) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // 1E700 is a number
	depth := 0
	var inObject []bool
	name := false // a string is next that is a name
	for {
		token, err := d.Token()
		if err != nil || errors.Is(err, io.EOF) {
			return s
		}
		delim, _ := token.(json.Delim)
		switch {
		case delim == ']' || delim == '}':
			depth--
			inObject = inObject[:depth]
			name = depth > 0 && inObject[depth-1]
		case name:
			name = false
		default:
			s.Values++
			if delim != 0 {
				depth++
				s.Depth = max(s.Depth, depth)
				inObject = append(inObject, delim == '{')
			}
			name = depth > 0 && inObject[depth-1]
		}
		if depth == 0 {
			return s // one value is a document
		}
	}
}
