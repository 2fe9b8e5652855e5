// Package version has the version of the Talos API that this code is compatible with.
//
// It does not have the product's own version. That is in the VERSION file and is stamped
// into the image's os-release at the very end, so that a new version rebuilds nothing
// expensive; a machine reads it from there.
package version

// TalosAPI is what a node reports to clients as its version. They choose the calls they
// make by it and refuse what is no semantic version; below v1.13 every client upgrades
// a node with MachineService.Upgrade alone.
const TalosAPI = "v1.12.0"

// Name is the product, as os-release and `talosctl version` print it.
const Name = "Talos Factory"
