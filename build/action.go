package build

// Action is a step with all its inputs resolved to digests.
type Action struct{}
