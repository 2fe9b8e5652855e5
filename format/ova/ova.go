// Package ova plans OVAs: a tar of an OVF descriptor, a manifest of SHA-256 digests and a disk, as DMTF DSP0243 1.1 has it
// and VMware takes it.
//
// It describes one machine with one disk and one network. It makes no disk (package vmdk does), signs nothing, and reads
// no OVA.
package ova

import (
	stdtar "archive/tar"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/talos-factory/talos-factory/format/extent"
	"github.com/talos-factory/talos-factory/format/tar"
)

// Machine is what the descriptor says of the virtual machine. Name is the machine's and that of the files in the archive.
type Machine struct {
	Name       string
	Product    string
	Vendor     string
	Version    string
	CPUs       int // 0: 2, as images of this kind have
	MemoryMiB  int // 0: 2048, likewise
	SecureBoot bool
	Properties []Property // what whoever deploys the machine is asked for
	Time       time.Time  // of the files in the archive
}

// Property reaches the machine through the hypervisor, in the environment document guestinfo.ovfEnv.
type Property struct{ Key, Label, Description string }

// Disk is the machine's disk: a streamOptimized VMDK.
type Disk struct {
	Image    *extent.Plan
	Capacity int64 // bytes of the disk inside
}

// DiskName is the disk's file name in the archive, which the disk's own descriptor repeats.
func (m Machine) DiskName() string { return m.Name + ".vmdk" }

// Plan returns the archive. The manifest needs a digest of the whole disk image, which sum returns: only the caller
// can read it, and may know it already.
func Plan(m Machine, disk Disk, sum func(*extent.Plan) ([sha256.Size]byte, error)) (*extent.Plan, error) {
	if m.Name == "" || m.Name == "." || m.Name == ".." || path.Base(m.Name) != m.Name || !fs.ValidPath(m.Name) {
		return nil, fmt.Errorf("cannot name a machine %q", m.Name)
	}
	if disk.Capacity <= 0 {
		return nil, fmt.Errorf("internal error: a disk of %d bytes", disk.Capacity)
	}
	if m.CPUs == 0 {
		m.CPUs = 2
	}
	if m.MemoryMiB == 0 {
		m.MemoryMiB = 2048
	}
	text, err := descriptor(m, disk)
	if err != nil {
		return nil, fmt.Errorf("writing the OVF descriptor: %w", err)
	}
	digest, err := sum(disk.Image)
	if err != nil {
		return nil, fmt.Errorf("hashing the disk image: %w", err)
	}
	// DSP0243 5.1: a line for each file but the manifest itself.
	manifest := fmt.Sprintf("SHA256(%s)= %x\nSHA256(%s)= %x\n", m.Name+".ovf", sha256.Sum256(text), m.DiskName(), digest)
	// DSP0243 5.3: the descriptor comes first, in a tar of the format ustar.
	return tar.Plan([]tar.File{
		{Path: m.Name + ".ovf", Mode: 0o644, Content: extent.FromBytes(text)},
		{Path: m.Name + ".mf", Mode: 0o644, Content: extent.FromBytes([]byte(manifest))},
		{Path: m.DiskName(), Mode: 0o644, Content: disk.Image},
	}, tar.Options{Format: stdtar.FormatUSTAR, Time: m.Time})
}
