// Package jsonscan bounds the shape of JSON before anything parses it: parsers recurse, and a stack that overflows ends the
// process, whoever recovers; and what is a few bytes in JSON can be hundreds in memory.
package jsonscan

import "fmt"

// The bounds. What API servers store is far below each of them: an object there has 1.5 MiB at most.
const (
	// MaxDepth is how deep lists and objects may nest.
	MaxDepth = 100
	// MaxValues is how many values there may be, those of lists and objects counted too.
	MaxValues = 400_000
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

// Scanner takes the shape of JSON that arrives in parts, in one pass and without recursion. Of data that is not valid JSON it is a
// shape that is right up to the first byte that is not, which is as far as a parser gets, and bounds the rest. The zero value has
// seen nothing.
type Scanner struct {
	shape    Shape
	depth    int
	text     int // length of the last string, or of the one that goes on
	inText   bool
	escaping bool // the next byte of the string is escaped
}

// Write takes the next part.
func (s *Scanner) Write(data []byte) {
	for _, c := range data {
		if s.inText {
			s.character(c)
			continue
		}
		switch c {
		case '"':
			s.inText, s.text = true, 0
		case '[', '{':
			s.depth++
			s.shape.Depth, s.shape.Values = max(s.shape.Depth, s.depth), s.shape.Values+1
		case ']', '}':
			s.depth = max(s.depth-1, 0)
		case ',':
			s.shape.Values++
		case ':':
			s.shape.Name = max(s.shape.Name, s.text)
		}
	}
}

// character takes the next byte of a string.
func (s *Scanner) character(c byte) {
	switch {
	case s.escaping:
		s.escaping = false
	case c == '"':
		s.inText = false
		return
	case c == '\\':
		s.escaping = true
	}
	s.text++
}

// Shape returns the shape of what was written.
func (s *Scanner) Shape() Shape {
	shape := s.shape
	shape.Values++ // what has neither brackets nor commas is one
	return shape
}

// Scan returns the shape of data.
func Scan(data []byte) Shape {
	var s Scanner
	s.Write(data)
	return s.Shape()
}

// Check returns an error if data is beyond a bound.
func Check(data []byte) error { return Scan(data).Check() }

// Check returns an error if the shape is beyond a bound.
func (s Shape) Check() error {
	switch {
	case s.Depth > MaxDepth:
		return fmt.Errorf("its lists and objects nest %d deep, and refit reads %d at most", s.Depth, MaxDepth)
	case s.Values > MaxValues:
		return fmt.Errorf("it has about %d values, and refit reads %d at most", s.Values, MaxValues)
	case s.Name > MaxName:
		return fmt.Errorf("the name of a field has %d bytes, and refit reads %d at most", s.Name, MaxName)
	default:
		return nil
	}
}
