// Package build is the build engine: it runs steps in a sandbox and remembers what they made.
//
// A Step is a recipe's description of an expensive, repeatable computation. Resolved, with
// every input replaced by its digest, it is an Action, and the hash of that is its ActionID.
// The Store holds what actions made, by sha256, and an Engine runs what is missing, lazily: an
// action whose result is known needs none of its inputs, so nothing is fetched for it.
//
// The package knows no concept of an operating system, of packages or of images; it draws
// nothing on a terminal (package build/progress does) and reads no configuration. It never
// uses the network itself: a Fetch brings its own means, and its bytes are pinned.
package build
