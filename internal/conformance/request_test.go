package conformance

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNumbersAreSentAsTheyAre: what is edited differs in nothing else.
func TestNumbersAreSentAsTheyAre(t *testing.T) {
	r := Request{body: []byte(`{"current":{"a":9007199254740993},"desired":{"a":1.0}}`)}
	edited, err := r.edit("with another name", func(s sides) { s.request["name"] = "x" })
	require.NoError(t, err)
	require.Equal(t, `{"current":{"a":9007199254740993},"desired":{"a":1.0},"name":"x"}`, string(edited.body))
}
