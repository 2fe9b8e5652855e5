package build

import "io"

// Tool is a program that a person runs (QEMU) or a test's foreign reader, run in a tree. It has
// the same namespaces as a step, but it may see chosen parts of the host, and nothing is cached.
type Tool struct {
	Tree           *Tree
	Argv           []string
	Env            map[string]string // the whole environment
	Dir            string            // working directory, /work if empty
	Binds          []Bind
	Net            bool     // keep the host's network
	Devices        []string // device nodes of the host: "/dev/kvm"
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Bind shows a file or directory of the host in a tool's sandbox.
type Bind struct {
	Host, Path string
	Writable   bool
}
