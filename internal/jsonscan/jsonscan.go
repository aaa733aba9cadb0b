// Package jsonscan bounds the shape of JSON before anything parses it: parsers recurse, and a stack that overflows ends the
// process, whoever recovers; and what is a few bytes in JSON can be hundreds in memory.
package jsonscan

import (
	"bytes"
	"fmt"
)

// The bounds. What API servers store is far below each of them: an object there has 1.5 MiB at most.
const (
	// MaxDepth is how deep lists and objects may nest.
	MaxDepth = 100
	// MaxValues is how many values there may be, those of lists and objects counted too.
	MaxValues = 500_000
	// MaxName is the longest name of a field, in bytes. The key of a label has 317 at most.
	MaxName = 512
)

// Shape is what a scan has seen of JSON.
type Shape struct {
	// Depth is how deep lists and objects nest: 0 for a number, 1 for [].
	Depth int
	// Values is how many values there are at most: it counts what opens a list or an object, and commas.
	Values int
	// Name is the length of the longest name of a field, in bytes as they are written.
	Name int
}

// Scan returns the shape of data in one pass, without recursion. Of data that is not valid JSON it returns a shape that is
// right up to the first byte that is not, which is as far as a parser gets, and bounds the rest.
func Scan(data []byte) Shape {
	s := Shape{Values: 1}
	depth, text := 0, 0 // text is the length of the last string
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			n := stringLength(data[i+1:])
			text, i = n, i+n+1
		case '[', '{':
			depth++
			s.Depth, s.Values = max(s.Depth, depth), s.Values+1
		case ']', '}':
			depth = max(depth-1, 0)
		case ',':
			s.Values++
		case ':':
			s.Name = max(s.Name, text)
		}
	}
	return s
}

// stringLength returns how many bytes there are until the quote that ends a string.
func stringLength(data []byte) int {
	for n := 0; ; {
		i := bytes.IndexByte(data[n:], '"')
		if i < 0 {
			return len(data)
		}
		// The quote is a part of the string if an odd number of backslashes is before it.
		backslashes := 0
		for j := n + i - 1; j >= 0 && data[j] == '\\'; j-- {
			backslashes++
		}
		if backslashes%2 == 0 {
			return n + i
		}
		n += i + 1
	}
}

// Check returns an error if data is beyond a bound.
func Check(data []byte) (Shape, error) {
	s := Scan(data)
	switch {
	case s.Depth > MaxDepth:
		return s, fmt.Errorf("its lists and objects nest %d deep, and refit reads %d at most", s.Depth, MaxDepth)
	case s.Values > MaxValues:
		return s, fmt.Errorf("it has about %d values, and refit reads %d at most", s.Values, MaxValues)
	case s.Name > MaxName:
		return s, fmt.Errorf("the name of a field has %d bytes, and refit reads %d at most", s.Name, MaxName)
	default:
		return s, nil
	}
}
