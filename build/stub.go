package build

import "github.com/talos-factory/talos-factory/build/sandbox"

// IsStub reports whether this process is the first one in a sandbox: then main, and TestMain of packages
// that build, must call StubMain before anything else.
func IsStub() bool { return sandbox.IsStub() }

// StubMain is the main function of a sandbox's first process; it does not return.
func StubMain() { sandbox.Main() }

// ExitError says that a command ran and ended badly.
type ExitError = sandbox.ExitError

// Isolation is how far a command is kept from the host; the values are sandbox.Namespaces and weaker ones.
type Isolation = sandbox.Isolation

// ParseIsolation reads the value of an --isolation flag; "" is the strongest.
func ParseIsolation(s string) (Isolation, error) { return sandbox.ParseIsolation(s) }
