package build

// IsStub reports whether this process is the stub of a sandbox: then main must call StubMain first of all.
func IsStub() bool { return false }

// StubMain is the main function of the stub; it does not return.
func StubMain() {}
