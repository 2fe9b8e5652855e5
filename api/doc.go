// Package api holds the .proto files of the node's API and, in the folders beside them,
// the Go code made from them.
//
// Names and numbers are those of the public Talos API, so that its clients work with our
// nodes and ours with its nodes. The package has no code of its own: only the test that
// refuses a change which would break a client built before it.
package api

//go:generate go tool -modfile=../tools/go.mod buf generate
