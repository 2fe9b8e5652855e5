//go:build linux

// Package security finds out how far the machine was verified as it started: Secure Boot and the UKI by what firmware and boot loader
// left in EFI variables, the root by what the kernel's device-mapper has in its table.
//
// It verifies nothing and decides nothing; whoever could change the kernel could change what it reads.
package security

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// State is what was found.
type State struct {
	SecureBoot    bool   // the firmware verified what it started
	BootedWithUKI bool   // a UKI's stub started the kernel
	RootHash      string // by which the kernel verifies the root as it is read; empty if it does not
}

// Variables lie in Dir of efivarfs: a name and the vendor's GUID.
const (
	Dir = "/sys/firmware/efi/efivars"

	secureBoot = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c" // UEFI 2.10, 3.3
	stubInfo   = "StubInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"   // systemd-stub(7)
)

// Find looks at the running machine. What could be found is returned with the error, too.
func Find() (s State, err error) {
	s, err = fromVariables(Dir)

	params, tableErr := table(mappedRoot, "verity")
	if tableErr == nil {
		s.RootHash, tableErr = rootHash(params)
	}

	if errors.Is(tableErr, fs.ErrNotExist) {
		tableErr = nil // nothing is mapped
	}

	return s, errors.Join(err, tableErr)
}

// fromVariables reads EFI variables: four bytes of attributes, then the value. A machine started by BIOS has none.
func fromVariables(dir string) (s State, err error) {
	value, err := os.ReadFile(filepath.Join(dir, secureBoot))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, fmt.Errorf("reading whether Secure Boot is on: %w", err)
	}

	s.SecureBoot = len(value) == 5 && value[4] == 1
	_, err = os.Stat(filepath.Join(dir, stubInfo))
	s.BootedWithUKI = err == nil

	return s, nil
}

// rootHash picks the root hash out of a verity target's parameters
// (Linux Documentation/admin-guide/device-mapper/verity.rst), if a block that does not match has the consequence it shall have.
func rootHash(params string) (string, error) {
	const hash, options = 8, 10

	fields := strings.Fields(params)
	if len(fields) < options || fields[0] != "1" {
		return "", fmt.Errorf("cannot read verity table %q", params)
	}

	for _, option := range fields[options:] {
		if option == "panic_on_corruption" {
			return fields[hash], nil
		}
	}

	return "", fmt.Errorf("cannot count on verity table %q: a block that does not match does not panic", params)
}
