package build

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Walk calls visit for every step that the given ones need, inputs before users, in a fixed order.
// It refuses cycles, and two steps of one name.
func Walk(steps []*Step, visit func(*Step) error) error {
	w := walker{visit: visit, state: map[*Step]int{}, names: map[string]*Step{}}
	for _, s := range steps {
		if err := w.walk(s); err != nil {
			return err
		}
	}
	return nil
}

type walker struct {
	visit func(*Step) error
	state map[*Step]int // 1: inputs are being walked, 2: done
	names map[string]*Step
}

func (w *walker) walk(s *Step) error {
	switch w.state[s] {
	case 1:
		return fmt.Errorf("cannot build step %q: it needs its own output", s.Name)
	case 2:
		return nil
	}
	w.state[s] = 1
	if other := w.names[s.Name]; other != nil {
		return fmt.Errorf("cannot build two steps named %q", s.Name)
	}
	w.names[s.Name] = s
	for _, need := range s.needs() {
		if err := w.walk(need); err != nil {
			return err
		}
	}
	w.state[s] = 2
	return w.visit(s)
}

// needs lists the steps whose outputs are inputs, each once, in the order of the inputs.
func (s *Step) needs() []*Step {
	var needs []*Step
	for _, in := range s.Inputs {
		if in.Output != nil && !slices.Contains(needs, in.Output.Step) {
			needs = append(needs, in.Output.Step)
		}
	}
	return needs
}

// WriteText writes the graph as text: each step, then what it needs.
func WriteText(w io.Writer, steps ...*Step) error {
	var b strings.Builder
	err := Walk(steps, func(s *Step) error {
		fmt.Fprintf(&b, "%s -> %s\n", s.Name, strings.Join(s.Outputs, " "))
		for _, m := range s.Mounts {
			fmt.Fprintf(&b, "    tree %s at %s (%d fetches)\n", m.Tree.Name, m.Path, len(m.Tree.Fetches))
		}
		files := 0
		for _, in := range s.Inputs {
			switch {
			case in.Output != nil:
				fmt.Fprintf(&b, "    step %s: %s at %s\n", in.Output.Step.Name, in.Output.Name, in.Path)
			case in.Fetch != nil:
				fmt.Fprintf(&b, "    fetch %s at %s\n", in.Fetch.Name, in.Path)
			default:
				files++
			}
		}
		if files > 0 {
			fmt.Fprintf(&b, "    %d files of the repository\n", files)
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// WriteDot writes the graph in the language of Graphviz: steps are boxes, trees are folders.
func WriteDot(w io.Writer, steps ...*Step) error {
	var b strings.Builder
	b.WriteString("digraph build {\n\trankdir=LR;\n\tnode [shape=box];\n")
	trees := map[Digest]bool{}
	err := Walk(steps, func(s *Step) error {
		fmt.Fprintf(&b, "\t%q;\n", s.Name)
		for _, m := range s.Mounts {
			tree := "tree " + m.Tree.Name
			if !trees[m.Tree.ID()] {
				trees[m.Tree.ID()] = true
				fmt.Fprintf(&b, "\t%q [shape=folder];\n", tree)
			}
			fmt.Fprintf(&b, "\t%q -> %q [style=dashed];\n", tree, s.Name)
		}
		for _, in := range s.Inputs {
			if in.Output != nil {
				fmt.Fprintf(&b, "\t%q -> %q [label=%q];\n", in.Output.Step.Name, s.Name, in.Output.Name)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.WriteString("}\n")
	_, err = io.WriteString(w, b.String())
	return err
}

// Explain writes what is hashed for a step. It runs nothing: when an input is the output of a step
// whose result is not known yet, it says so instead of a digest, and there is no ActionID.
func (e *Engine) Explain(ctx context.Context, w io.Writer, step *Step) error {
	known := map[*Step]map[string]Blob{}
	return Walk([]*Step{step}, func(s *Step) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.check(); err != nil {
			return err
		}
		var unknown []string
		a, err := newAction(s, func(ref *OutputRef) (Blob, error) {
			b, ok := known[ref.Step][ref.Name]
			if !ok && !slices.Contains(unknown, ref.Step.Name) {
				unknown = append(unknown, ref.Step.Name)
			}
			return b, nil
		})
		if err != nil {
			return err
		}
		if len(unknown) == 0 {
			r, found, err := e.Store.loadRecord(a.ID())
			if err != nil {
				return err
			}
			if found {
				known[s] = r.Outputs
			}
		}
		if s != step {
			return nil
		}
		return explain(w, s, a, unknown, known[s])
	})
}

func explain(w io.Writer, s *Step, a *Action, unknown []string, outputs map[string]Blob) error {
	var b strings.Builder
	fmt.Fprintf(&b, "step %q\n", s.Name)
	if len(unknown) == 0 {
		fmt.Fprintf(&b, "action %s\n", a.ID())
	} else {
		fmt.Fprintf(&b, "action not known before these have run: %s\n", strings.Join(unknown, ", "))
	}
	fmt.Fprintf(&b, "schema %d, stub protocol %d, host %s, target %s, in %s\n", a.Schema, a.Stub, a.Host, a.Target, a.Dir)
	for i, arg := range a.Argv {
		fmt.Fprintf(&b, "argv %d %q\n", i, arg)
	}
	for _, key := range slices.Sorted(maps.Keys(a.Env)) {
		fmt.Fprintf(&b, "env  %s=%q\n", key, a.Env[key])
	}
	for _, m := range a.Mounts {
		fmt.Fprintf(&b, "tree %s %s\n", m.Tree, m.Path)
	}
	for _, in := range a.Inputs {
		digest, note := in.Blob.Digest.String(), ""
		if in.Blob.Digest.IsZero() {
			digest = strings.Repeat("?", 64)
		}
		if in.Executable {
			note = " (executable)"
		}
		fmt.Fprintf(&b, "file %s %s%s\n", digest, in.Path, note)
	}
	for _, name := range a.Outputs {
		if blob, ok := outputs[name]; ok {
			fmt.Fprintf(&b, "out  %s %s (%d bytes, in the store's table)\n", blob.Digest, name, blob.Size)
		} else {
			fmt.Fprintf(&b, "out  %s (not made yet)\n", name)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
