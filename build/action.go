package build

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"sort"
	"time"
	"unicode/utf8"

	"github.com/talos-factory/talos-factory/build/sandbox"
)

// actionSchema is the version of the canonical text of an Action. Raising it gives every action a new ID.
const actionSchema = 1

// Action is a step with every input resolved to a digest: a complete description of a computation.
// Its canonical text is its JSON, in which lists are sorted (Argv aside) and field order is fixed.
type Action struct {
	Schema  int               `json:"schema"`
	Stub    int               `json:"stub"` // sandbox.Protocol: what the stub sets up, not which binary it is
	Host    string            `json:"host"`
	Target  string            `json:"target"`
	Argv    []string          `json:"argv"`
	Env     map[string]string `json:"env"`
	Dir     string            `json:"dir"`
	Mounts  []ActionMount     `json:"mounts"`
	Inputs  []ActionInput     `json:"inputs"`
	Outputs []string          `json:"outputs"`

	Name    string        `json:"-"` // of the step, for people
	Caches  []Cache       `json:"-"`
	Timeout time.Duration `json:"-"`
}

// ActionMount is a tree of the store at a path in the sandbox.
type ActionMount struct {
	Path string `json:"path"`
	Tree Digest `json:"tree"`
}

// ActionInput is a blob of the store at a path in the sandbox.
type ActionInput struct {
	Path       string `json:"path"`
	Blob       Blob   `json:"blob"`
	Executable bool   `json:"executable,omitempty"`
}

// Canonical is the text whose digest is the action's ID.
func (a *Action) Canonical() []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(a); err != nil {
		panic("internal error: encoding an action: " + err.Error()) // strings, numbers and digests always encode
	}
	return b.Bytes()
}

// ID names the computation.
func (a *Action) ID() ActionID { return ActionID(Sum(a.Canonical())) }

// newAction resolves a step. output tells what the outputs of its input steps are.
func newAction(s *Step, output func(*OutputRef) (Blob, error)) (*Action, error) {
	a := &Action{
		Schema: actionSchema, Stub: sandbox.Protocol,
		Host: s.Host, Target: s.Target, Argv: s.Argv, Env: maps.Clone(s.Env), Dir: s.Dir,
		Mounts: []ActionMount{}, Inputs: []ActionInput{}, Outputs: slices.Sorted(slices.Values(s.Outputs)),
		Name: s.Name, Caches: s.Caches, Timeout: s.Timeout,
	}
	if a.Dir == "" {
		a.Dir = sandbox.WorkDir
	}
	if a.Env == nil {
		a.Env = map[string]string{}
	}
	for _, m := range s.Mounts {
		a.Mounts = append(a.Mounts, ActionMount{m.Path, m.Tree.ID()})
	}
	sort.Slice(a.Mounts, func(i, j int) bool { return a.Mounts[i].Path < a.Mounts[j].Path })
	for _, in := range s.Inputs {
		b, err := in.blob(output)
		if err != nil {
			return nil, fmt.Errorf("planning %q: input %s: %w", s.Name, in.Path, err)
		}
		a.Inputs = append(a.Inputs, ActionInput{in.Path, b, in.Executable})
	}
	sort.Slice(a.Inputs, func(i, j int) bool { return a.Inputs[i].Path < a.Inputs[j].Path })
	return a, nil
}

func (in *Input) blob(output func(*OutputRef) (Blob, error)) (Blob, error) {
	switch {
	case in.Fetch != nil:
		return in.Fetch.Blob, nil
	case in.Output != nil:
		return output(in.Output)
	case in.HostFile != "":
		content, err := os.ReadFile(in.HostFile)
		return Blob{Sum(content), int64(len(content))}, err
	}
	return Blob{Sum(in.Bytes), int64(len(in.Bytes))}, nil
}

// check refuses a step that could not run or would not have a sound ActionID.
func (s *Step) check() error {
	if err := s.checkFields(); err != nil {
		return fmt.Errorf("cannot use step %q: %w", s.Name, err)
	}
	return nil
}

func (s *Step) checkFields() error {
	if s.Name == "" || len(s.Argv) == 0 || len(s.Outputs) == 0 {
		return fmt.Errorf("it needs a name, a command and at least one output")
	}
	if s.Dir != "" && (!path.IsAbs(s.Dir) || path.Clean(s.Dir) != s.Dir) {
		return fmt.Errorf("directory %q is not absolute and clean", s.Dir)
	}
	taken := map[string]bool{"/proc": true, "/dev": true, sandbox.WorkDir: true, sandbox.OutDir: true, sandbox.TmpDir: true}
	claim := func(p string) error {
		if !path.IsAbs(p) || path.Clean(p) != p {
			return fmt.Errorf("path %q is not absolute and clean", p)
		}
		if taken[p] {
			return fmt.Errorf("path %s is taken twice, or reserved", p)
		}
		taken[p] = true
		return nil
	}
	for _, m := range s.Mounts {
		if m.Tree == nil || len(m.Tree.Spec) == 0 {
			return fmt.Errorf("the mount at %s has no tree or one without a Spec", m.Path)
		}
		if err := claim(m.Path); err != nil {
			return err
		}
	}
	if !taken["/"] {
		return fmt.Errorf("nothing is mounted at /")
	}
	for _, in := range s.Inputs {
		if err := in.check(); err != nil {
			return err
		}
		if err := claim(in.Path); err != nil {
			return err
		}
	}
	for _, c := range s.Caches {
		if !isFileName(c.Name) {
			return fmt.Errorf("%q is no name for a cache", c.Name)
		}
		if err := claim(c.Path); err != nil {
			return err
		}
	}
	return s.checkText()
}

// checkText refuses what JSON cannot carry unchanged, so that no two steps share an ID by it.
func (s *Step) checkText() error {
	for _, name := range s.Outputs {
		if !isFileName(name) {
			return fmt.Errorf("%q is no name for an output file", name)
		}
	}
	texts := slices.Concat(s.Argv, s.Outputs, []string{s.Dir})
	for k, v := range s.Env {
		texts = append(texts, k, v)
	}
	for _, in := range s.Inputs {
		texts = append(texts, in.Path)
	}
	for _, m := range s.Mounts {
		texts = append(texts, m.Path)
	}
	for _, t := range texts {
		if !utf8.ValidString(t) || bytes.IndexByte([]byte(t), 0) >= 0 {
			return fmt.Errorf("%q is not valid UTF-8 or has a zero byte", t)
		}
	}
	return nil
}

func isFileName(name string) bool {
	return name != "" && name != "." && name != ".." && path.Base(name) == name
}

func (in *Input) check() error {
	n := 0
	for _, set := range []bool{in.Bytes != nil, in.Fetch != nil, in.Output != nil, in.HostFile != ""} {
		if set {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("input %s has %d sources, want exactly one", in.Path, n)
	}
	if in.Fetch != nil && in.Fetch.Blob.Digest.IsZero() {
		return fmt.Errorf("input %s is a fetch without a digest", in.Path)
	}
	if in.Output != nil && !slices.Contains(in.Output.Step.Outputs, in.Output.Name) {
		return fmt.Errorf("input %s wants %q of step %q, which has no such output", in.Path, in.Output.Name, in.Output.Step.Name)
	}
	return nil
}
