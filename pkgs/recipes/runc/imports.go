//go:build tools

// Package runc keeps go.mod in step with the program the recipe builds.
package runc

import _ "github.com/opencontainers/runc"
