package remote

import "context"

// Reach looks over a connection whether the agent could be brought to a node and run there, as o says: it is a Client's LogIn, for who has no Agents.
func Reach(ctx context.Context, conn Conn, o ClientOptions) error {
	if o.Agents == nil {
		o.Agents = &Agents{}
	}
	c, err := NewClient(conn, o)
	if err != nil {
		return err
	}
	return c.LogIn(ctx)
}
