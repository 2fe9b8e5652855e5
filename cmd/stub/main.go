// Stub is the first process in a sandbox, as a binary of its own. The factory runs itself as its stub;
// this one is for executors that bring the stub into their own containers.
package main

import "github.com/talos-factory/talos-factory/build"

func main() { build.StubMain() }
