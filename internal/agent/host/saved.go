package host

import (
	"bytes"
	"encoding/json"
)

// Saved is a file as it was, with all that it takes to put it back. The zero value is one that was not there.
type Saved struct {
	Data []byte `json:"data,omitempty"`
	// State has no digest.
	State State `json:"state"`
	// Extended is nil where an agent before this one has saved it; what the file in its place has is then kept.
	Extended Extended `json:"extended"`
}

// UnmarshalJSON implements json.Unmarshaler. Agents before this one have written "content" for some files.
func (s *Saved) UnmarshalJSON(raw []byte) error {
	type plain Saved
	var both struct {
		plain
		Content []byte `json:"content"`
	}
	if err := json.Unmarshal(raw, &both); err != nil {
		return err
	}
	*s = Saved(both.plain)
	if len(s.Data) == 0 {
		s.Data = both.Content
	}
	return nil
}

// same reports whether content, owner and mode are the same.
func (s Saved) same(other Saved) bool {
	return s.State == other.State && bytes.Equal(s.Data, other.Data)
}

// Save returns the file at p, through symbolic links, as it is.
func (r Root) Save(p string) (Saved, error) {
	f, state, err := r.Open(p)
	if err != nil || f == nil {
		return Saved{}, err
	}
	defer f.Close()
	var data bytes.Buffer
	if _, err := data.ReadFrom(f); err != nil {
		return Saved{}, err
	}
	x, err := ExtendedOf(f)
	return Saved{Data: data.Bytes(), State: state, Extended: x}, err
}

// IsAs reports whether the file at p is as it was saved.
func (r Root) IsAs(p string, was Saved) (bool, error) {
	now, err := r.Save(p)
	return err == nil && now.same(was), err
}

// PutBack makes the file at p what it was, if it is not so already.
func (h Host) PutBack(p string, was Saved) error {
	same, err := h.IsAs(p, was)
	switch {
	case err == nil && same:
		return nil
	case was.State.Exists:
		return h.WriteBack(p, bytes.NewReader(was.Data), was.State, was.Extended)
	case err != nil:
		return err
	}
	return h.RemoveFile(p)
}
