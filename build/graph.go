package build

import (
	"context"
	"io"
)

// Walk calls visit for every step that the given ones need, inputs before users, in a fixed order.
func Walk(steps []*Step, visit func(*Step) error) error { return errTODO }

// WriteText writes the graph as indented text.
func WriteText(w io.Writer, steps ...*Step) error { return errTODO }

// WriteDot writes the graph in the language of Graphviz.
func WriteDot(w io.Writer, steps ...*Step) error { return errTODO }

// Explain writes what is hashed for a step.
func (e *Engine) Explain(ctx context.Context, w io.Writer, step *Step) error { return errTODO }
