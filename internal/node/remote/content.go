package remote

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"
)

// content is an agent as a node is sent it, out of its file. It is not kept in memory, of which that would be 50 MiB.
type content struct {
	agent AgentBinary
	from  io.Reader

	mu   sync.Mutex // what sends may go on for a moment after it was told to end
	sum  hash.Hash
	sent int64
	err  error // what went wrong with the file, or io.EOF
}

func (b AgentBinary) content() *content {
	return &content{agent: b, from: io.NewSectionReader(b.file, 0, b.size), sum: sha256.New()}
}

// Read implements io.Reader.
func (c *content) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sum.Write(p[:n])
	c.sent += int64(n)
	if err != nil {
		c.err = err
	}
	return n, err
}

// changed returns why what was sent is not what was read when the server began, or nil: then it is not the file that is to blame.
func (c *content) changed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil && !errors.Is(c.err, io.EOF):
		return fmt.Errorf("read %s: %w; restart refit when it can be read again", c.agent.file.Name(), c.err)
	case c.err != nil && c.sent < c.agent.size, c.sent == c.agent.size && hex.EncodeToString(c.sum.Sum(nil)) != c.agent.SHA256:
		return fmt.Errorf("%s was written over while refit ran; restart refit to have it bring the agent that is there now", c.agent.file.Name())
	}
	return nil
}
